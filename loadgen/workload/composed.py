"""Stages whose requests hang together: sessions that grow turn by turn, several classes in one mix. Pure.

A *start* is a session's first turn, or a request that is by itself. Classes are apportioned by requests: a class with
share s and t turns per session on average has a weight of s / t among the starts. Sessions are whole, so that a stage
has about as many requests as it asks for. Starts of all classes come in random order.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from loadgen.errors import UserError
from loadgen.quantities import text
from loadgen.records import Run
from loadgen.workload import arrivals, lengths, replay
from loadgen.workload.contents import Kind, apportioned, cut_inputs, cut_outputs, drawn, prefix_groups, shared_run
from loadgen.workload.fit import Fitted, Turn
from loadgen.workload.model import Scenario, Stage
from loadgen.workload.prompts import ADDED
from loadgen.workload.seeding import generator
from loadgen.workload.traffic import Class, Sessions

Session = list[Turn]  # `parents` are places within it


def composed(scenario: Scenario, stage: Stage, most: int) -> Fitted | None:
    """The turns of a stage, sessions whole and one after the other; None where it is of another kind.

    Raises UserError for more than `most` requests.
    """
    work = scenario.workload
    if stage.input_tokens is not None or (work.sessions is None and work.mix is None):
        return None
    whole = {name: getattr(work, name) for name in Class.model_fields if name in type(work).model_fields}
    classes = work.mix or (Class.model_construct(name="", share=1.0, **whole),)
    counts = _starts(stage, classes)
    wanted = sum(count * _turns(kind) for count, kind in zip(counts, classes, strict=True))
    if wanted > most:
        raise UserError(
            f"{scenario.place(stage)}: about {wanted:,.0f} requests; should be at most {most:,}: lower requests, "
            "rate or duration"
        )
    made: list[Session] = []
    notes: list[str] = []
    for kind, count in zip(classes, counts, strict=True):
        found, told = _of_class(scenario, stage, kind, count)
        made += found
        notes += told
    order = generator(scenario.seed, stage.name, "order").permutation(len(made)) if work.mix else range(len(made))
    return Fitted(tuple(_flat([made[place] for place in order])), 0.0, tuple(notes))


def _turns(kind: Class) -> float:
    return lengths.mean(kind.sessions.turns) if kind.sessions is not None else 1.0


def _starts(stage: Stage, classes: Sequence[Class]) -> list[int]:
    """How many starts of each class: at least one, and as many as the stage's bounds ask for."""
    weights = np.array([kind.share / _turns(kind) for kind in classes])
    per_request = weights.sum() / sum(kind.share for kind in classes)
    bounds = [stage.requests * per_request] if stage.requests is not None else []
    if stage.duration is not None and stage.rate is not None:
        bounds.append(arrivals.count_within(stage.duration, rate_per_s=stage.rate))
    elif stage.duration is not None and stage.concurrency is not None:
        bounds.append(replay.most_by_time(stage.concurrency, stage.duration) * per_request)
    return [max(1, count) for count in apportioned(weights, max(1, round(min(bounds)))).tolist()]


def _flat(sessions: Sequence[Session]) -> list[Turn]:
    turns: list[Turn] = []
    for session in sessions:
        first = len(turns)
        turns += [turn._replace(parents=tuple(first + parent for parent in turn.parents)) for turn in session]
    return turns


def _of_class(scenario: Scenario, stage: Stage, kind: Class, count: int) -> tuple[list[Session], Sequence[str]]:
    purpose = (stage.name, kind.name) if kind.name else (stage.name,)
    prefix = kind.shared_prefix if kind.name else scenario.prefix_of(stage)
    if kind.output_tokens is None:
        raise ValueError("a class has output_tokens")
    if kind.sessions is not None:
        like = Kind(kind.sessions.first_tokens, kind.output_tokens, prefix, None, purpose, kind.name)
        return _sessions(scenario, like, kind.sessions, count)
    if kind.input_tokens is None:
        raise ValueError("a class has input_tokens or sessions")
    like = Kind(kind.input_tokens, kind.output_tokens, prefix, kind.families, purpose, kind.name)
    turns, notes = drawn(like, count, scenario)
    return [[turn] for turn in turns], notes


class _Draws(NamedTuple):
    """By turn, sessions one after the other; first turns have no use for `append` and `think_s`."""

    append: list[int]
    output: list[int]
    think_s: list[float]

    def of(self, first: int, count: int) -> "_Draws":
        """Those of one session."""
        return _Draws(*(column[first : first + count] for column in self))  # type: ignore[arg-type]


def _sessions(scenario: Scenario, kind: Kind, spec: Sessions, count: int) -> tuple[list[Session], Sequence[str]]:
    work = scenario.workload

    def rng(what: str) -> np.random.Generator:
        return generator(scenario.seed, *kind.purpose, what)

    bound = min(spec.compact_at or math.inf, work.max_input_tokens or math.inf)
    most = work.max_input_tokens if work.fit == "drop" else None
    first, notes = cut_inputs(kind.inputs, lengths.draw(kind.inputs, count, rng("first_tokens"), most), work)
    turns = lengths.draw(spec.turns, count, rng("turns"))
    total = int(turns.sum())
    output, told = cut_outputs(lengths.draw(kind.outputs, total, rng("output_tokens")), work)
    think_s = lengths.draw_seconds(spec.think, total, rng("think"))
    draws = _Draws(
        append=lengths.draw(spec.append_tokens, total, rng("append_tokens")).tolist(),
        output=output.tolist(),
        think_s=np.minimum(think_s, spec.think_cap or np.inf).tolist(),
    )
    groups = prefix_groups(kind.prefix, count, rng("groups"))
    made: list[Session] = []
    place = compacted = 0
    for number, (tokens, group, length) in enumerate(zip(first.tolist(), groups.tolist(), turns.tolist(), strict=True)):
        prompts = _prompts(tokens, draws.append[place + 1 : place + length], bound, spec.compact_to)
        compacted += prompts[-1][0]
        made.append(_session(kind, number, group, prompts, draws.of(place, length)))
        place += length
    notes = [*notes, *told, *_told(spec, turns.tolist(), compacted, bound, think_s)]
    return made, [f"{', '.join(kind.purpose)}: {note}" for note in notes]


def _prompts(first: int, appended: Sequence[int], bound: float, compact_to: int | None) -> list[tuple[int, int]]:
    """(compactions so far, prompt tokens) by turn."""
    found = [(0, first)]
    for more in appended:
        compactions, tokens = found[-1]
        if tokens + more <= bound:
            found.append((compactions, tokens + more))
        else:
            found.append((compactions + 1, min(compact_to or first, int(bound))))
    return found


def _session(kind: Kind, number: int, group: int, prompts: Sequence[tuple[int, int]], draws: _Draws) -> Session:
    turns: Session = []
    for place, (compactions, tokens) in enumerate(prompts):
        head = shared_run(kind, group, tokens)
        own = Run(f"{ADDED}{kind.owner}{number}.{compactions}", tokens - sum(run.tokens for run in head))
        parents = (place - 1,) if place else ()
        turns.append(Turn(0.0, (*head, own), draws.output[place], parents, draws.think_s[place] if place else None))
    return turns


def _told(
    spec: Sessions,
    turns: Sequence[int],
    compacted: int,
    bound: float,
    think_s: "np.ndarray[tuple[int], np.dtype[np.float64]]",
) -> list[str]:
    notes = [f"{len(turns):,} sessions of {min(turns):,} to {max(turns):,} turns"]
    if compacted:
        notes.append(f"{compacted:,} prompts would have grown above {int(bound):,} tokens and are compacted")
    above = 0 if spec.think_cap is None else int(np.count_nonzero(think_s > spec.think_cap))
    if above and spec.think_cap is not None:
        notes.append(f"cut {above:,} of {len(think_s):,} think times to {text(spec.think_cap, 's')}")
    return notes
