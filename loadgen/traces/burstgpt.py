"""BurstGPT's traces, 1 to 3: CSV read by column name, because the third inserts columns instead of appending them.

Timestamp: seconds since midnight of the first day. Session ID (third only, on conversations) and Elapsed time
(seconds from request to last token) are kept. `Response tokens` 0 marks a failure: such rows are dropped and counted
by the frame. Source: github.com/HPMLL/BurstGPT.
"""

from collections.abc import Iterator
from functools import lru_cache

from loadgen.traces.rows import Format, Head, Row, Source
from loadgen.traces.sources import header_cells
from loadgen.traces.tables import Table, seconds, tables, tokens
from loadgen.traces.values import Place, name

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def recognises(head: Head) -> bool:
    """True if the file's first line is this format's header."""
    return {*COLUMNS, "Log Type"} <= set(header_cells(head))


def rows(source: Source) -> Iterator[Row]:
    """The rows in the order of the file. Raises UserError at the first malformed one."""
    for table in tables(source.paths, COLUMNS):
        yield from _rows(table)


def _rows(table: Table) -> Iterator[Row]:
    when, asked, answered = (table.place(name) for name in COLUMNS)
    session, elapsed, model, log = (
        table.place(name) if table.has(name) else None for name in ("Session ID", "Elapsed time", "Model", "Log Type")
    )
    path = table.path
    for line, cells in table.rows:
        yield Row(
            at_ns=round(seconds(cells[when], path, line, COLUMNS[0]) * 1_000_000_000),
            input_tokens=tokens(cells[asked], path, line, COLUMNS[1]),
            output_tokens=tokens(cells[answered], path, line, COLUMNS[2]),
            session=None if session is None else name(cells[session] or None, Place(path, line), "Session ID"),
            kind=_kind("" if model is None else cells[model], "" if log is None else cells[log]),
            duration_s=None
            if elapsed is None or not cells[elapsed]
            else seconds(cells[elapsed], path, line, "Elapsed time"),
        )


@lru_cache(maxsize=256)
def _kind(model: str, log: str) -> str | None:
    """`ChatGPT, Conversation log`: one text for all rows of a kind, however many."""
    return ", ".join(filter(None, (model[:60], log[:60]))) or None


FORMAT = Format(
    name="burstgpt",
    label="CSV: Timestamp (s), Request tokens, Response tokens, Log Type; Session ID, Elapsed time",
    recognises=recognises,
    rows=rows,
    time_unit="s",
)
