"""Azure's LLM inference traces: CSV with TIMESTAMP, ContextTokens, GeneratedTokens.

Both published timestamp forms are read: `2023-11-16 18:17:03.9799600` (2023: seven fractional digits, no zone) and
`2024-05-10 00:00:00.009930+00:00` (2024: with a zone, and without a fraction on whole seconds). Instants without a
zone are taken as UTC; only differences matter. The multimodal trace (2025) adds NumImages: rows with images are a class
of their own, and are replayed as text of the same length. Source: github.com/Azure/AzurePublicDataset.
"""

from collections.abc import Iterator

from loadgen.traces.instants import stamp_ns
from loadgen.traces.rows import Format, Head, Row, Source, malformed
from loadgen.traces.sources import header_cells
from loadgen.traces.tables import Table, tables, tokens

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
IMAGES = "NumImages"


def recognises(head: Head) -> bool:
    """True if the file's first line is this format's header."""
    return set(COLUMNS) <= set(header_cells(head))


def rows(source: Source) -> Iterator[Row]:
    """The rows in the order of the file. Raises UserError at the first malformed one."""
    for table in tables(source.paths, COLUMNS):
        yield from _rows(table)


def _rows(table: Table) -> Iterator[Row]:
    when, context, generated = (table.place(name) for name in COLUMNS)
    images = table.place(IMAGES) if table.has(IMAGES) else None
    path = table.path
    for line, cells in table.rows:
        try:
            at_ns = stamp_ns(cells[when].strip())
        except ValueError as error:
            raise malformed(path, line, COLUMNS[0], cells[when], str(error)) from error
        yield Row(
            at_ns,
            tokens(cells[context], path, line, COLUMNS[1]),
            tokens(cells[generated], path, line, COLUMNS[2]),
            kind=None if images is None else "images" if tokens(cells[images], path, line, IMAGES) else "text",
        )


FORMAT = Format(
    name="azure", label="CSV: TIMESTAMP,ContextTokens,GeneratedTokens; NumImages", recognises=recognises, rows=rows
)
