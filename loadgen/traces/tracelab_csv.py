"""TraceLab's workloads: CSV by column name, one row per round, with times in milliseconds.

`input_len` counts what a round appends to the `prefix_len` tokens that it shares with the round before: a prompt is
both. `tool_wait_after_ms` lies between a round's end and the next one. `arrival_time` is the session's, and drawn, not
recorded; without it all sessions start at 0. Sessions are called `id` or `session_id`, and count from file to file.
Source: github.com/uw-syfi/TraceLab.
"""

from collections.abc import Iterator
from typing import NamedTuple

from loadgen.traces.rows import About, Format, Head, Item, Row, Source, malformed
from loadgen.traces.sources import header_cells
from loadgen.traces.tables import Table, tables, tokens
from loadgen.traces.turns import required_id
from loadgen.traces.values import Place

NAMES = ("session_id", "id")
COLUMNS = ("round_idx", "prefix_len", "input_len", "output_len", "tool_wait_after_ms")
NS_PER_MS = 1_000_000


def recognises(head: Head) -> bool:
    """True if the file's first line is a header of one of the forms."""
    cells = set(header_cells(head))
    return set(COLUMNS) <= cells and not cells.isdisjoint(NAMES)


class _Round(NamedTuple):
    number: int
    turn: int
    next_ns: int  # the earliest instant of the round after
    wait_ns: int


def rows(source: Source) -> Iterator[Item]:
    """The rounds in the order of the files. Raises UserError at the first malformed one."""
    yield About(note="arrival times of this form are not recorded: they are drawn, or all 0")
    several = len(source.paths) > 1
    for number, table in enumerate(tables(source.paths, COLUMNS), 1):
        yield from _rows(table, f"{number}:" if several else "")


def _rows(table: Table, prefix: str) -> Iterator[Row]:
    path = table.path
    key = next((one for one in NAMES if table.has(one)), None)
    if key is None:
        raise malformed(path, 1, "header", ",".join(table.header), f"one with {' or '.join(NAMES)}")
    who, arrival = table.place(key), table.place("arrival_time") if table.has("arrival_time") else None
    round_, kept, added, answered, wait = (table.place(column) for column in COLUMNS)
    last: dict[str, _Round] = {}
    for line, cells in table.rows:
        place = Place(path, line)
        session = prefix + required_id(cells[who].strip(), place, key)
        before = last.get(session)
        index = tokens(cells[round_], path, line, "round_idx")
        if before is not None and index <= before.number:
            raise malformed(
                path, line, "round_idx", cells[round_], f"above {before.number}, the session's round before"
            )
        arrival_ns = 0 if arrival is None else _ns(cells[arrival], place, "arrival_time")
        at_ns = arrival_ns if before is None else before.next_ns
        wait_ns = _ns(cells[wait], place, "tool_wait_after_ms")
        turn = 1 if before is None else before.turn + 1
        last[session] = _Round(index, turn, at_ns + wait_ns, wait_ns)
        prefix_tokens = tokens(cells[kept], path, line, "prefix_len")
        yield Row(
            at_ns=at_ns,
            input_tokens=prefix_tokens + tokens(cells[added], path, line, "input_len"),
            output_tokens=tokens(cells[answered], path, line, "output_len"),
            session=session,
            turn=turn,
            think_s=None if before is None else before.wait_ns / 1e9,
            prefix_tokens=None if before is None else prefix_tokens,
        )


def _ns(cell: str, place: Place, column: str) -> int:
    try:
        value = float(cell)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise place.wrong(column, cell, "milliseconds, 0 or more")
    return round(value * NS_PER_MS)


FORMAT = Format(
    name="tracelab_csv",
    label="CSV: session_id or id, round_idx, prefix_len, input_len, output_len, tool_wait_after_ms; arrival_time (ms)",
    recognises=recognises,
    rows=rows,
)
