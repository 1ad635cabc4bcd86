"""A trace's rows made ready to be sent: window, scale, bounds, sessions, think times. Pure.

What is left out, shortened or cut apart is counted, and the counts become notes of the plan.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from loadgen.errors import UserError
from loadgen.quantities import text
from loadgen.records import Run, Trace, TraceRow
from loadgen.workload.chains import Chained, chained, cut
from loadgen.workload.instants import instants, thinking
from loadgen.workload.links import Links, in_order, linked
from loadgen.workload.model import Workload
from loadgen.workload.scale import scaled
from loadgen.workload.source import TraceSource


class Turn(NamedTuple):
    """A row that may be sent. `runs` without a stage's name; `parents`: places among the turns, all before its own.

    `think_s`: after the last parent ended; None if that is not known (the turn then has its own time alone).
    """

    at_s: float
    runs: tuple[Run, ...]
    output_tokens: int
    parents: tuple[int, ...] = ()
    think_s: float | None = None

    @property
    def input_tokens(self) -> int:
        """Prompt tokens."""
        return sum(run.tokens for run in self.runs)


class Fitted(NamedTuple):
    """The rows that may be sent, the instant of the trace that is a replay's zero, and what was done to them."""

    turns: tuple[Turn, ...]
    origin_s: float
    notes: tuple[str, ...]


class _Kept(NamedTuple):
    """Places of rows that are sent, each after its parents; parents are kept rows too."""

    order: list[int]
    parents: dict[int, tuple[int, ...]]
    notes: tuple[str, ...]


def fitted(trace: Trace, workload: Workload, seed: int) -> Fitted:
    """The rows of `trace` inside the workload's window and bounds, in an order in which none comes before its parents.

    Raises UserError if none is left, or if rows wait for each other in a circle.
    """
    source = workload.trace
    if source is None:
        raise ValueError("the workload names no trace")
    window = source.window
    rows, notes = scaled(trace.rows, source.scale_tokens) if source.scale_tokens else (trace.rows, ())
    at_s, told = instants(trace, source, seed)
    inside = [place for place, row in enumerate(rows) if window is None or window[0] <= row.at_s < window[1]]
    links = linked(rows)
    waits = links.parents if source.sessions == "closed" else ((),) * len(rows)
    order = in_order(inside, at_s, waits, trace.source)
    chains = chained(rows, _by_turn(inside, links), links.before, by_session=trace.block_scope == "session")
    kept = _bounded(rows, order, waits, workload)
    notes = (*_read(trace, window, len(inside)), *_marked([*notes, *told]), *kept.notes)
    if not kept.order:
        raise UserError(f"{trace.source}: no row is left to send: {'; '.join(notes)}; widen window or max_input_tokens")
    think_s, thoughts = thinking(rows, [place for place in kept.order if kept.parents[place]], kept.parents, source)
    cap = workload.max_output_tokens
    notes = (*notes, *_marked([*_sessions(rows, inside, links, kept, source), *_assumed(chains), *thoughts]))
    new = {place: position for position, place in enumerate(kept.order)}
    turns = tuple(
        Turn(
            at_s=at_s[place],
            runs=cut(chains.runs[place], workload.max_input_tokens or rows[place].input_tokens),
            output_tokens=min(rows[place].output_tokens, cap or rows[place].output_tokens),
            parents=tuple(new[parent] for parent in kept.parents[place]),
            think_s=think_s.get(place),
        )
        for place in kept.order
    )
    origin_s = window[0] if window else min(rows[place].at_s for place in kept.order)
    return Fitted(turns, origin_s, (*notes, *_outputs(rows, kept.order, cap)))


def _by_turn(inside: Sequence[int], links: Links) -> list[int]:
    """Sessions' turns in their own order, whatever waits for what."""
    chain = [() if before is None else (before,) for before in links.before]
    return in_order(inside, range(len(chain)), chain, "")


def _bounded(rows: Sequence[TraceRow], order: list[int], waits: Sequence[tuple[int, ...]], workload: Workload) -> _Kept:
    """What `fit` leaves. Rows that follow a dropped one follow what it followed, so that sessions stay whole."""
    bound, drop = workload.max_input_tokens, workload.fit == "drop"
    above = {place for place in order if bound is not None and rows[place].input_tokens > bound}
    there = set(order)
    through: dict[int, tuple[int, ...]] = {}  # a row's parents, or of a dropped row those that stand in for it
    kept = []
    for place in order:
        found: dict[int, None] = {}
        for parent in waits[place]:
            if parent in there:
                found.update(dict.fromkeys(through[parent] if drop and parent in above else (parent,)))
        through[place] = tuple(found)
        if not drop or place not in above:
            kept.append(place)
    return _Kept(kept, {place: through[place] for place in kept}, tuple(_above(rows, order, above, workload)))


def _above(rows: Sequence[TraceRow], order: Sequence[int], above: set[int], workload: Workload) -> Iterator[str]:
    if not above:
        return
    if workload.fit == "cap":
        yield f"trace: cut {len(above):,} of {len(order):,} prompts to {workload.max_input_tokens:,} tokens"
        return
    yield f"trace: dropped {len(above):,} of {len(order):,} rows: input_tokens above {workload.max_input_tokens:,}"
    sessions = {rows[place].session for place in above} - {None}
    if sessions:
        yield (
            f"trace: {_many(len(sessions), 'session')} lost turns to this: what followed a dropped turn follows what "
            "that one followed, with its own think time"
        )


def _read(trace: Trace, window: tuple[float, float] | None, inside: int) -> Iterator[str]:
    yield f"trace: {trace.rows_read:,} {trace.format} rows read"
    for reason, count in trace.dropped.items():
        yield f"trace: dropped {count:,} of {trace.rows_read:,} rows: {reason}"
    if window is not None:
        yield f"trace: {inside:,} rows lie in the window {window[0]:g} s to {window[1]:g} s"
    yield from _marked(trace.notes)


def _sessions(
    rows: Sequence[TraceRow], inside: Sequence[int], links: Links, kept: _Kept, source: TraceSource
) -> Iterator[str]:
    """How sessions are sent, and where they are cut."""
    named = {row.session for place in kept.order if (row := rows[place]).session is not None}
    following = sum(bool(kept.parents[place]) for place in kept.order)
    if source.sessions == "open" and any(links.parents[place] for place in kept.order):
        yield "sessions: open: every row is sent at its own time, whether or not those that it follows have ended"
        return
    if following:
        joins = sum(len(kept.parents[place]) > 1 for place in kept.order)
        yield (
            f"{following:,} of {len(kept.order):,} rows follow others, in {_many(len(named), 'session')}"
            f"{f', {joins:,} of them several (joins)' if joins else ''}: each is sent when those have ended and its "
            f"client has thought; {len(kept.order) - following:,} are starts"
        )
    if links.unknown:
        yield f"{_many(links.unknown, 'row')} name rows that the trace does not hold: those count as ended"
    there = set(inside)
    cut_off = sum(any(parent not in there for parent in links.parents[place]) for place in inside)
    if cut_off:
        yield f"the window cuts {_many(cut_off, 'row')} off from rows before it that they follow: those count as ended"


def _assumed(chains: Chained) -> Iterator[str]:
    if chains.assumed:
        yield (
            f"{_many(chains.assumed, 'turn')} do not say what they share with the turn before: taken to begin with all "
            f"of it, but for {chains.compacted:,} that are shorter and share nothing"
        )


def _outputs(rows: Sequence[TraceRow], order: Sequence[int], cap: int | None) -> Iterator[str]:
    above = 0 if cap is None else sum(rows[place].output_tokens > cap for place in order)
    if above:
        yield f"trace: cut {above:,} of {len(order):,} outputs to {text(cap, 'tokens')}"


def _marked(notes: Iterable[str]) -> Iterator[str]:
    return (f"trace: {note}" for note in notes)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
