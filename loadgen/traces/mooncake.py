"""Mooncake's traces: JSON lines with timestamp (ms), input_length, output_length, hash_ids; and the form with sessions.

Each id stands for a 512-token block and all blocks before it, so the same id means the same whole prefix; the last id
covers what is left of the prompt. A row whose number of ids is not ceil(input_length / 512) is refused: it comes from
a trace with another block size, and would be replayed with prompts of the wrong length or reuse. Rows without hash_ids
share nothing. Source: github.com/kvcache-ai/Mooncake, FAST25-release.

The form with sessions ("Mooncake+", github.com/ai-dynamo/aiperf) adds session_id and delay (ms after the end of the
session's row before; it then needs no timestamp), and has exactly one of input_length, text_input, messages, payload.
Text is measured at CHARACTERS_PER_TOKEN and forgotten.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from loadgen.traces.rows import About, Dropped, Format, Head, Item, Row, Source
from loadgen.traces.sources import first_object, objects
from loadgen.traces.values import CHARACTERS_PER_TOKEN, Place, blocks, estimated_tokens, name, number, tokens

BLOCK_TOKENS = 512
LENGTHS = ("input_length", "text_input", "messages", "payload")
TIMES = ("timestamp", "delay")
NS_PER_MS = 1_000_000


def recognises(head: Head) -> bool:
    """True if the file's first line is a row of this format (and not of one that adds chat_id and counts seconds)."""
    row = first_object(head)
    if row is None or "chat_id" in row or not any(key in row for key in TIMES):
        return False
    return "input_length" in row or ("output_length" in row and any(key in row for key in LENGTHS))


class _Turn(NamedTuple):
    number: int
    at_ns: int


class _Reading:
    """What has to be remembered from row to row: the last turn of each session."""

    def __init__(self) -> None:
        self.estimated = 0
        self.turns: dict[str, _Turn] = {}

    def row(self, row: dict[str, Any], place: Place) -> Row | Dropped:
        at_ms = row.get("timestamp")
        if "session_id" not in row and at_ms is None:
            raise place.missing("timestamp")
        input_tokens = self._input_tokens(row, place)
        if row.get("output_length") is None:
            if "session_id" not in row and "input_length" in row:
                raise place.missing("output_length")
            return Dropped("no output_length")
        output_tokens = tokens(row["output_length"], place, "output_length")
        ids = _blocks(row, input_tokens, place) if "hash_ids" in row else ()
        if "session_id" not in row:
            return Row(
                _ns(at_ms, place, "timestamp", "milliseconds since the trace's start"), input_tokens, output_tokens, ids
            )
        return self._turn(row, place, Row(0, input_tokens, output_tokens, ids))

    def _turn(self, row: dict[str, Any], place: Place, bare: Row) -> Row:
        session = name(row["session_id"], place, "session_id")
        if session is None:
            raise place.wrong("session_id", None, "an id")
        before = self.turns.get(session)
        delay, at_ms = row.get("delay"), row.get("timestamp")
        think_ns = None if delay is None else _ns(delay, place, "delay", "milliseconds after the session's row before")
        if at_ms is not None:
            at_ns = _ns(at_ms, place, "timestamp", "milliseconds since the trace's start")
        elif before is not None and think_ns is not None:
            at_ns = before.at_ns + think_ns
        else:
            raise place.wrong("timestamp", None, "given, or a delay and an earlier row of the session")
        turn = _Turn(1 if before is None else before.number + 1, at_ns)
        self.turns[session] = turn
        return Row(
            at_ns=at_ns,
            input_tokens=bare.input_tokens,
            output_tokens=bare.output_tokens,
            blocks=bare.blocks,
            session=session,
            turn=turn.number,
            think_s=None if think_ns is None or before is None else think_ns / 1e9,
        )

    def _input_tokens(self, row: dict[str, Any], place: Place) -> int:
        given = [key for key in LENGTHS if row.get(key) is not None]
        if not given:
            raise place.missing("input_length")
        if len(given) > 1:
            raise place.wrong(" and ".join(given), len(given), f"exactly one of {', '.join(LENGTHS)}")
        if given[0] == "input_length":
            return tokens(row["input_length"], place, "input_length")
        self.estimated += 1
        return estimated_tokens(row[given[0]])


def rows(source: Source) -> Iterator[Item]:
    """The rows in the order of the file. Raises UserError at the first malformed one."""
    for path in source.paths:
        reading = _Reading()
        for line, row in objects(path):
            yield reading.row(row, Place(path, line))
        if reading.estimated:
            yield About(
                note=f"input tokens of {reading.estimated:,} rows are estimated: their text, at {CHARACTERS_PER_TOKEN} "
                "characters a token"
            )


def _ns(value: Any, place: Place, key: str, should: str) -> int:
    return round(number(value, place, key, should) * NS_PER_MS)


def _blocks(row: dict[str, Any], input_tokens: int, place: Place) -> tuple[int, ...]:
    ids = blocks(row["hash_ids"], place, "hash_ids")
    expected = -(-input_tokens // BLOCK_TOKENS)
    if len(ids) != expected and row["hash_ids"] is not None:
        should = f"{expected} for input_length {input_tokens} (blocks of {BLOCK_TOKENS} tokens)"
        raise place.wrong("number of hash_ids", len(ids), should)
    return ids


FORMAT = Format(
    name="mooncake",
    label="JSON lines: timestamp (ms), input_length, output_length, hash_ids (512 tokens); session_id, delay",
    recognises=recognises,
    rows=rows,
    time_unit="ms",
    block_tokens=BLOCK_TOKENS,
)
