"""TraceLab's rounds of coding agents: JSON lines, one per call of the model, without text.

A round is sent when its input is complete: at the last of the `timing_events` (user_message, tool_result) before the
first one of the answer; it ends with the last event. think = from the end of the session's round before to there, which
is what its tools, or its user, took. `prefix_tokens` is what the provider's cache gave, so at least as much is shared
with the round before; the first round's prefix is shared with nothing in the trace and is kept as `cached` alone.
Source: github.com/uw-syfi/TraceLab (arXiv 2606.30560).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from loadgen.traces.instants import stamp_ns
from loadgen.traces.keys import line_has
from loadgen.traces.rows import Dropped, Format, Head, Item, Row, Source
from loadgen.traces.sources import objects
from loadgen.traces.turns import Turns, required_id
from loadgen.traces.values import Place, name, tokens

INPUTS = ("user_message", "tool_result")


def recognises(head: Head) -> bool:
    """True if the file's first line is a round."""
    return line_has(head, "session_id", "round_index", "newly_append_tokens", "output_tokens")


class _Span(NamedTuple):
    at_ns: int
    end_ns: int


class _Reading:
    """What is remembered: the last round of each session."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.rounds: dict[str, int] = {}

    def row(self, row: dict[str, Any], place: Place) -> Row | Dropped:
        session = required_id(row.get("session_id"), place, "session_id")
        index = tokens(row.get("round_index"), place, "round_index")
        if row.get("output_tokens") is None:
            return Dropped("no output tokens recorded")
        input_tokens, prefix_tokens = _input_tokens(row, place)
        span = self._span(row, place, session)
        if span is None:
            return Dropped("no timing_events")
        if index <= self.rounds.get(session, -1):
            return Dropped("not after the session's round before")
        self.rounds[session] = index
        turn = self.turns.follow(session, span.at_ns, span.end_ns)
        return Row(
            at_ns=span.at_ns,
            input_tokens=input_tokens,
            output_tokens=tokens(row["output_tokens"], place, "output_tokens"),
            session=session,
            turn=turn.number,
            think_s=turn.think_s,
            prefix_tokens=None if turn.number == 1 else prefix_tokens,
            cached_tokens=prefix_tokens,
            kind=name(row.get("model") or row.get("provider"), place, "model"),
            duration_s=(span.end_ns - span.at_ns) / 1e9,
        )

    def _span(self, row: dict[str, Any], place: Place, session: str) -> _Span | None:
        """Without events a later round is taken to follow at once, and to take no time that is known."""
        events = row.get("timing_events")
        if not events:
            end_ns = self.turns.end_ns(session)
            return None if end_ns is None else _Span(end_ns, end_ns)
        if not isinstance(events, list):
            raise place.wrong("timing_events", events, "a list of events")
        at_ns: int | None = None
        instants = []
        answering = False
        for number, event in enumerate(events):
            kind, instant = _event(event, place, f"timing_events[{number}]")
            instants.append(instant)
            answering = answering or kind not in INPUTS
            if not answering:
                at_ns = instant if at_ns is None else max(at_ns, instant)
        begin_ns = min(instants) if at_ns is None else at_ns
        return _Span(begin_ns, max(begin_ns, *instants))


def rows(source: Source) -> Iterator[Item]:
    """The rounds in the order of the files. Raises UserError at the first malformed one."""
    reading = _Reading()
    for path in source.paths:
        for line, row in objects(path):
            yield reading.row(row, Place(path, line))
    yield from reading.turns.about()


def _input_tokens(row: dict[str, Any], place: Place) -> tuple[int, int]:
    """All of the prompt, and what of it the cache gave."""
    prefix, added = (tokens(row.get(key), place, key) for key in ("prefix_tokens", "newly_append_tokens"))
    total = row.get("input_tokens_total", prefix + added)
    if total != prefix + added:
        raise place.wrong(
            "input_tokens_total", total, f"{prefix + added}: prefix_tokens and newly_append_tokens together"
        )
    return prefix + added, prefix


def _event(event: Any, place: Place, key: str) -> tuple[str, int]:
    if not isinstance(event, dict) or not isinstance(event.get("timestamp"), str):
        raise place.wrong(key, event, "an event with event_type and timestamp")
    try:
        return str(event.get("event_type")), stamp_ns(event["timestamp"])
    except ValueError as error:
        raise place.wrong(f"{key}.timestamp", event["timestamp"], str(error)) from error


FORMAT = Format(
    name="tracelab",
    label="JSON lines: session_id, round_index, prefix_tokens, newly_append_tokens, output_tokens, timing_events",
    recognises=recognises,
    rows=rows,
)
