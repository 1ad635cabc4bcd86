"""GitHub Copilot's agents (Azure, 2026): JSON lines, a session each, with turns and their llm_calls; no text.

Every call is a row; calls of a session stand in order of time, and each follows the one before. think = from the end of
that one (`timestamp` + `duration_ms`) to the call. `tokens.cached` is what the recorded server had in its cache: of a
later call that much is taken to be shared with the one before. Calls with a status from 400 on are dropped.
Source: github.com/Azure/AzurePublicDataset.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from loadgen.traces.instants import stamp_ns
from loadgen.traces.keys import line_has
from loadgen.traces.rows import Dropped, Format, Head, Item, Row, Source
from loadgen.traces.sources import objects
from loadgen.traces.turns import Turns, required_id
from loadgen.traces.values import Place, name, number, tokens

FAILED = 400  # HTTP statuses from here on


def recognises(head: Head) -> bool:
    """True if the file's first line begins with a session of this format."""
    return line_has(head, "session_id", "turns", "llm_calls")


class _Call(NamedTuple):
    at_ns: int
    value: dict[str, Any]
    key: str


def rows(source: Source) -> Iterator[Item]:
    """The calls, session by session. Raises UserError at the first malformed one."""
    turns = Turns()
    for path in source.paths:
        for line, value in objects(path):
            yield from _session(value, Place(path, line), turns)
    yield from turns.about()


def _session(value: dict[str, Any], place: Place, turns: Turns) -> Iterator[Item]:
    session = required_id(value.get("session_id"), place, "session_id")
    for call in sorted(_calls(value, place), key=lambda call: call.at_ns):
        yield _row(session, call, place, turns)
    turns.forget(session)


def _calls(value: dict[str, Any], place: Place) -> Iterator[_Call]:
    for turn_key, turn in _listed(value, "turns", "turns", place):
        for key, call in _listed(turn, "llm_calls", f"{turn_key}.llm_calls", place):
            stamp = call.get("timestamp")
            try:
                yield _Call(stamp_ns(stamp if isinstance(stamp, str) else ""), call, key)
            except ValueError as error:
                raise place.wrong(f"{key}.timestamp", stamp, str(error)) from error


def _listed(value: dict[str, Any], field: str, key: str, place: Place) -> Iterator[tuple[str, dict[str, Any]]]:
    found = value.get(field) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise place.wrong(key, found, "a list of objects")
    for index, one in enumerate(found):
        yield f"{key}[{index}]", one


def _row(session: str, call: _Call, place: Place, turns: Turns) -> Row | Dropped:
    value, key = call.value, call.key
    status = value.get("status_code")
    if status is not None and number(status, place, f"{key}.status_code", "an HTTP status") >= FAILED:
        return Dropped("failed call")
    counts = value.get("tokens")
    if not isinstance(counts, dict):
        raise place.wrong(f"{key}.tokens", counts, "an object with prompt and completion")
    given = value.get("duration_ms")
    duration_ns = None if given is None else round(number(given, place, f"{key}.duration_ms", "milliseconds") * 1e6)
    turn = turns.follow(session, call.at_ns, None if duration_ns is None else call.at_ns + duration_ns)
    cached = None if counts.get("cached") is None else tokens(counts["cached"], place, f"{key}.tokens.cached")
    return Row(
        at_ns=call.at_ns,
        input_tokens=tokens(counts.get("prompt"), place, f"{key}.tokens.prompt"),
        output_tokens=tokens(counts.get("completion"), place, f"{key}.tokens.completion"),
        session=session,
        turn=turn.number,
        think_s=turn.think_s,
        prefix_tokens=None if turn.number == 1 else cached,
        cached_tokens=cached,
        kind=name(value.get("model"), place, f"{key}.model"),
        duration_s=None if duration_ns is None else duration_ns / 1e9,
    )


FORMAT = Format(
    name="copilot",
    label="JSON lines: session_id, turns with llm_calls: timestamp, duration_ms, tokens prompt, completion, cached",
    recognises=recognises,
    rows=rows,
)
