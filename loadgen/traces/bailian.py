"""Qwen-Bailian's traces: JSON lines with chat_id, parent_chat_id, timestamp (s), input_length, output_length, hash_ids.

Each id stands for a 16-token block and all blocks before it. parent_chat_id is -1 for the first turn of a session. A
turn whose parent already has another turn after it begins a session of its own, which follows the parent. A parent
that has not been seen begins a session too, and a note counts such orphans. The next prompt does not hold all of the
answer before it (an application takes the thoughts out), so what turns share is told by the blocks alone.
Source: github.com/alibaba-edu/qwen-bailian-usagetraces-anon.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from loadgen.traces.rows import About, Format, Head, Item, Row, Source
from loadgen.traces.sources import first_object, objects
from loadgen.traces.values import Place, blocks, covering, is_whole, name, number, tokens

BLOCK_TOKENS = 16
NO_PARENT = -1
KEYS = ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length")


def recognises(head: Head) -> bool:
    """True if the file's first line is a row of this format."""
    row = first_object(head)
    return row is not None and set(KEYS) <= set(row)


class _Turn(NamedTuple):
    session: str
    number: int


class _Reading:
    """Every chat of the trace, with its session, and the last chat of each session: two hours fit into memory."""

    def __init__(self) -> None:
        self.turns: dict[int, _Turn] = {}
        self.last: dict[str, int] = {}
        self.orphans = 0

    def row(self, row: dict[str, Any], place: Place) -> Row:
        for key in KEYS:
            if key not in row:
                raise place.missing(key)
        chat, parent = row["chat_id"], row["parent_chat_id"]
        turn, follows = self._turn(chat, parent, place)
        input_tokens = tokens(row["input_length"], place, "input_length")
        ids = blocks(row.get("hash_ids"), place, "hash_ids")
        return Row(
            at_ns=round(number(row["timestamp"], place, "timestamp", "seconds since the trace's start") * 1e9),
            input_tokens=input_tokens,
            output_tokens=tokens(row["output_length"], place, "output_length"),
            blocks=covering(ids, input_tokens, BLOCK_TOKENS, place, "hash_ids"),
            id=str(chat),
            session=turn.session,
            turn=turn.number,
            after=follows,
            kind=name(row.get("type"), place, "type"),
        )

    def _turn(self, chat: Any, parent: Any, place: Place) -> tuple[_Turn, tuple[str, ...]]:
        """A chat's place in its session, and the parent of the first one where that is in another session."""
        if not is_whole(chat) or chat in self.turns:
            raise place.wrong("chat_id", chat, "a whole number, of one row alone")
        if not is_whole(parent) and parent != NO_PARENT:
            raise place.wrong("parent_chat_id", parent, f"a chat_id, or {NO_PARENT} for none")
        before = self.turns.get(parent)
        follows: tuple[str, ...] = ()
        self.orphans += before is None and parent != NO_PARENT
        if before is not None and self.last[before.session] == parent:
            turn = _Turn(before.session, before.number + 1)
        else:
            turn = _Turn(str(chat), 1)
            follows = () if before is None else (str(parent),)
        self.turns[chat] = turn
        self.last[turn.session] = chat
        return turn, follows


def rows(source: Source) -> Iterator[Item]:
    """The rows in the order of the files. Raises UserError at the first malformed one."""
    reading = _Reading()
    for path in source.paths:
        for line, row in objects(path):
            yield reading.row(row, Place(path, line))
    if reading.orphans:
        yield About(note=f"{reading.orphans:,} rows name a parent that is not in the trace before them: kept as roots")


FORMAT = Format(
    name="bailian",
    label="JSON lines: chat_id, parent_chat_id, timestamp (s), input_length, output_length, hash_ids (16 tokens)",
    recognises=recognises,
    rows=rows,
    time_unit="s",
    block_tokens=BLOCK_TOKENS,
)
