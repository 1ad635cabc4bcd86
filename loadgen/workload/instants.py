"""When a trace's rows are due: coarse clocks spread, think times taken as asked. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from loadgen.quantities import text
from loadgen.records import Trace, TraceRow
from loadgen.workload.seeding import generator
from loadgen.workload.source import TraceSource


class Instants(NamedTuple):
    """Each row's instant in the trace, and a note on how it came about."""

    at_s: tuple[float, ...]
    notes: tuple[str, ...]


def instants(trace: Trace, source: TraceSource, seed: int) -> Instants:
    """The rows' own times; where the trace's clock is coarse, each at a random instant of its step.

    A clock with the step q says floor(t / q) q of an arrival at t: t is somewhere in the q seconds after it. Spread
    evenly, arrivals that were a Poisson process are one again.
    """
    step_s = trace.time_quantum_s
    own = [row.at_s for row in trace.rows]
    if step_s is None:
        return Instants(tuple(own), ())
    step = f"the trace's clock has steps of {text(step_s, 's')}; {_together(own)} of the rows share their instant"
    if source.dequantize == "off":
        return Instants(tuple(own), (f"{step}: sent in batches as they stand (dequantize: off)",))
    offsets = generator(seed, "dequantize").random(len(own)) * step_s
    spread = np.asarray(own) + offsets
    return Instants(tuple(spread.tolist()), (f"{step}: each is spread evenly over its step (dequantize)",))


def _together(at_s: Sequence[float]) -> str:
    _, counts = np.unique(np.asarray(at_s), return_counts=True)
    return text(int(counts[counts > 1].sum()) / len(at_s), "ratio")


class Thinking(NamedTuple):
    """By the row's place: the client's delay after the last row that it follows ended; None: not known."""

    think_s: dict[int, float | None]
    notes: tuple[str, ...]


def thinking(
    rows: Sequence[TraceRow], places: Sequence[int], parents: Mapping[int, Sequence[int]], source: TraceSource
) -> Thinking:
    """The delays of the rows at `places`, all of which follow others.

    As recorded: `think_s`, else the gap from the end of the last parent (its time + its recorded duration). A row with
    neither has only its own time.
    """
    if source.think != "recorded":
        delay_s = 0.0 if source.think == "none" else float(source.think)
        told = "no think time" if source.think == "none" else f"a think time of {text(delay_s, 's')} for all turns"
        return Thinking(dict.fromkeys(places, delay_s), (told,) if places else ())
    recorded = {place: _recorded_s(rows, place, parents[place]) for place in places}
    found: dict[int, float | None] = {
        place: None if think_s is None else min(think_s / source.think_speed, source.think_cap or np.inf)
        for place, think_s in recorded.items()
    }
    return Thinking(found, tuple(_notes(recorded, source)))


def _recorded_s(rows: Sequence[TraceRow], place: int, parents: Sequence[int]) -> float | None:
    row = rows[place]
    if row.think_s is not None:
        return row.think_s
    ends = [rows[parent].at_s + length for parent in parents if (length := rows[parent].duration_s) is not None]
    return max(0.0, row.at_s - max(ends)) if len(ends) == len(parents) else None


def _notes(recorded: dict[int, float | None], source: TraceSource) -> Iterator[str]:
    known = [think_s / source.think_speed for think_s in recorded.values() if think_s is not None]
    if len(known) < len(recorded):
        yield (
            f"{len(recorded) - len(known):,} of {len(recorded):,} turns have no recorded think time: with `speed` they "
            "are sent at their own times, but not before those that they follow have ended; in a closed loop at once"
        )
    if source.think_speed != 1:
        yield f"think times are divided by {source.think_speed:g}"
    above = [think_s for think_s in known if source.think_cap is not None and think_s > source.think_cap]
    if source.think_cap is not None and above:
        cap, longest = text(source.think_cap, "s"), text(max(above), "s")
        yield f"cut {len(above):,} of {len(known):,} think times to {cap} (the longest: {longest})"
