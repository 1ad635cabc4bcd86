"""Vidur's processed traces: CSV with num_prefill_tokens, num_decode_tokens, and arrived_at (s) in one of its forms.

The other form has lengths alone: all requests stand at 0 s. Source: github.com/microsoft/vidur.
"""

from collections.abc import Iterator

from loadgen.traces.rows import About, Format, Head, Item, Row, Source
from loadgen.traces.sources import header_cells
from loadgen.traces.tables import Table, seconds, tables, tokens

COLUMNS = ("num_prefill_tokens", "num_decode_tokens")
WHEN = "arrived_at"


def recognises(head: Head) -> bool:
    """True if the file's first line is this format's header, with arrivals or without."""
    return set(COLUMNS) <= set(header_cells(head))


def rows(source: Source) -> Iterator[Item]:
    """The rows in the order of the files. Raises UserError at the first malformed one."""
    for table in tables(source.paths, COLUMNS):
        if not table.has(WHEN):
            yield About(note="no arrivals are recorded: all requests stand at 0 s; send them in a closed loop")
        yield from _rows(table)


def _rows(table: Table) -> Iterator[Row]:
    asked, answered = (table.place(name) for name in COLUMNS)
    when = table.place(WHEN) if table.has(WHEN) else None
    path = table.path
    for line, cells in table.rows:
        yield Row(
            0 if when is None else round(seconds(cells[when], path, line, WHEN) * 1e9),
            tokens(cells[asked], path, line, COLUMNS[0]),
            tokens(cells[answered], path, line, COLUMNS[1]),
        )


FORMAT = Format(
    name="vidur",
    label="CSV: num_prefill_tokens, num_decode_tokens; arrived_at (s)",
    recognises=recognises,
    rows=rows,
    time_unit="s",
)
