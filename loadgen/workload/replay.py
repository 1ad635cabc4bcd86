"""A stage over a trace's turns: which of them, in which order, when. Pure.

With `speed` turns stand in order of the trace, and starts are due at their own times. With `concurrency` and `rate`
whole sessions stand one after the other: so many of them are kept going, or begun per second. In all three a turn that
follows others waits for their ends and for its think time.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from loadgen.records import Request, Role, sessions
from loadgen.workload import arrivals, contents
from loadgen.workload.fit import Fitted, Turn
from loadgen.workload.model import Stage

# A closed loop bounded by time alone is planned as if a request took 50 ms at least: enough for any but an emulator,
# and a stage that uses up its plan ends early, which shows (planned = sent).
REQUESTS_PER_STREAM_S = 20
MOST_BY_TIME = 100_000


def most_by_time(concurrency: int, duration_s: float) -> int:
    """How many requests a closed loop that is ended by time may need."""
    return max(concurrency, min(MOST_BY_TIME, math.ceil(concurrency * duration_s * REQUESTS_PER_STREAM_S)))


def chosen(stage: Stage, fitted: Fitted) -> list[Turn]:
    """The turns that a stage sends, in its order; `parents` are places in this list."""
    turns = list(fitted.turns) if stage.speed is not None else _by_session(fitted.turns)
    return turns[: _count(stage, fitted, turns)]


def requests(
    stage: Stage, fitted: Fitted, turns: Sequence[Turn], starts_s: Sequence[float] | None
) -> tuple[Request, ...]:
    """The requests of the chosen turns. `starts_s`: when those without parents are due, where the stage has a rate."""
    starts = iter(starts_s or ())
    made = []
    for index, (turn, content) in enumerate(zip(turns, contents.of_turns(stage.name, turns), strict=True)):
        own_s = None if stage.speed is None else round((turn.at_s - fitted.origin_s) / stage.speed, 6)
        if turn.parents:
            due_s = own_s if turn.think_s is None else None
        else:
            due_s = own_s if own_s is not None else next(starts, None)
        made.append(
            Request(
                index=index,
                due_s=due_s,
                runs=content.runs,
                output_tokens=content.output_tokens,
                after=turn.parents or None,
                think_s=round(turn.think_s or 0.0, 6),
            )
        )
    return tuple(made)


def role(stage: Stage, requests: Sequence[Request]) -> Role:
    """One stream is one request at a time: a session whose turns run side by side is more."""
    if stage.concurrency is None:
        return "open_loop"
    if stage.concurrency > 1:
        return "saturated"
    one_by_one = all(
        earlier.index in (later.after or ()) for session in sessions(requests) for earlier, later in pairwise(session)
    )
    return "one_stream" if one_by_one else "saturated"


def notes(stage: Stage, fitted: Fitted, turns: Sequence[Turn]) -> Iterator[str]:
    """How much of the trace the stage sends, and in which time."""
    if len(turns) < len(fitted.turns):
        yield f"{stage.name}: the first {len(turns):,} of {len(fitted.turns):,} rows"
    if stage.concurrency == 1 and role(stage, _bare(turns)) == "saturated":
        yield (
            f"{stage.name}: turns of one session run side by side, so it is not judged as one stream: give the stage "
            "input_tokens of its own"
        )
    if stage.speed is not None:
        span_s = max(turn.at_s for turn in turns) - fitted.origin_s
        starts_s = max(turn.at_s for turn in turns if not turn.parents) - fitted.origin_s
        if any(turn.parents for turn in turns):
            begun = f"its starts in {span(starts_s / stage.speed)}, later turns as their sessions come to them"
            yield f"{stage.name}: {span(span_s)} of trace, {begun} (speed {stage.speed:g})"
        else:
            yield f"{stage.name}: {span(span_s)} of trace in {span(span_s / stage.speed)} (speed {stage.speed:g})"


def span(length_s: float) -> str:
    """A stretch of time in hours, minutes or seconds."""
    for size_s, name in ((3600.0, "h"), (60.0, "min")):
        if length_s >= 1.5 * size_s:
            return f"{length_s / size_s:.1f} {name}"
    return f"{length_s:.1f} s"


def _bare(turns: Sequence[Turn]) -> list[Request]:
    return [Request(index=place, runs=(), output_tokens=1, after=turn.parents) for place, turn in enumerate(turns)]


def _by_session(turns: Sequence[Turn]) -> list[Turn]:
    order = [request.index for session in sessions(_bare(turns)) for request in session]
    new = {place: position for position, place in enumerate(order)}
    return [turns[place]._replace(parents=tuple(new[parent] for parent in turns[place].parents)) for place in order]


def _count(stage: Stage, fitted: Fitted, turns: Sequence[Turn]) -> int:
    bounds = [len(turns)] + ([stage.requests] if stage.requests is not None else [])
    if stage.duration is not None:
        bounds.append(_within(stage, stage.duration, fitted, turns))
    return min(bounds)


def _within(stage: Stage, duration_s: float, fitted: Fitted, turns: Sequence[Turn]) -> int:
    """Up to the first turn that would come too late."""
    if stage.concurrency is not None:
        return most_by_time(stage.concurrency, duration_s)
    if stage.speed is not None:
        end_s = fitted.origin_s + duration_s * stage.speed
        return max(1, next((place for place, turn in enumerate(turns) if turn.at_s >= end_s), len(turns)))
    most = arrivals.count_within(duration_s, rate_per_s=stage.rate or 1.0)
    starts = [place for place, turn in enumerate(turns) if not turn.parents]
    return starts[most] if most < len(starts) else len(turns)
