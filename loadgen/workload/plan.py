"""A scenario (and its trace) -> every request that will be sent, in order. Pure, from one seed.

Two calls with equal arguments give equal plans with equal digests, in any process. Every stage draws from its own
streams, so that changing one stage leaves the others as they were.
"""

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from loadgen.errors import UserError
from loadgen.records import Plan, Request, StagePlan, StageSpec, Trace, sessions
from loadgen.workload import arrivals, contents, replay
from loadgen.workload.composed import composed
from loadgen.workload.contents import Content, kind_of
from loadgen.workload.demand import met
from loadgen.workload.fit import Fitted, fitted
from loadgen.workload.model import Cell, Scenario, Stage
from loadgen.workload.reuse import reuse
from loadgen.workload.seeding import generator

MOST_REQUESTS = 1_000_000


class _Built(NamedTuple):
    plan: StagePlan
    notes: tuple[str, ...]


def build(scenario: Scenario, trace: Trace | None = None) -> Plan:
    """The plan of `scenario`; `trace` is what `workload.trace` names, as read.

    Notes tell, with counts, what was left out or cut. Raises UserError where the trace has too few rows.
    """
    if scenario.workload.trace is not None and trace is None:
        raise ValueError("the scenario takes its rows from a trace: give it")
    named = scenario.workload.trace is not None
    rows = fitted(trace, scenario.workload, scenario.seed) if trace is not None and named else None
    built: list[_Built] = []
    for stage in scenario.sent:
        built.append(_stage(scenario, stage, rows, [one for earlier in built for one in _all(earlier.plan)]))
    grid = scenario.grid.note(scenario.workload.max_input_tokens) if scenario.grid is not None else None
    stages = tuple(stage.plan for stage in built)
    return Plan(
        scenario=scenario.name,
        seed=scenario.seed,
        digest=_digest(scenario, stages),
        stages=stages,
        notes=(
            *(rows.notes if rows else ()),
            *(note for stage in built for note in stage.notes),
            *([grid] if grid else []),
        ),
    )


def _digest(scenario: Scenario, stages: tuple[StagePlan, ...]) -> str:
    """Over all that shapes the work: seed, endpoint, stages with every request. Not over names and salts."""
    digest = blake2b(msgspec.json.encode((scenario.seed, scenario.workload.endpoint)), digest_size=16)
    encoder = msgspec.json.Encoder()
    for stage in stages:
        digest.update(encoder.encode(stage))
    return digest.hexdigest()


def _all(plan: StagePlan) -> tuple[Request, ...]:
    return (*plan.warmup, *plan.requests)


def _stage(scenario: Scenario, stage: Stage, rows: Fitted | None, earlier: Sequence[Request]) -> _Built:
    traced = rows if scenario.workload.trace is not None and scenario.lengths_of(stage) is None else None
    made = composed(scenario, stage, MOST_REQUESTS) if traced is None else None
    measured, notes = _measured(scenario, stage, traced, made)
    warmup = _warmup(stage, traced)
    source = traced or made
    if source is not None:
        before = contents.like_turns(scenario.seed, stage.name, source.turns, warmup)
    else:
        drawn, _ = contents.drawn(kind_of(scenario, stage), warmup, scenario, warmup=True)
        before = contents.of_turns(stage.name, drawn, warmup=True)
    warm = _warm(scenario, stage, traced, before)
    waits = any(request.after for request in measured)
    spec = StageSpec(
        name=stage.name,
        role=replay.role(stage, measured),
        concurrency=stage.concurrency,
        context_tokens=stage.context if isinstance(stage, Cell) else None,
        rate_per_s=stage.rate,
        burstiness_cv=_burstiness(stage),
        speed=stage.speed,
        # An open loop's plan ends with its duration already: a stop there would cut off requests that are only late.
        duration_s=stage.duration if stage.concurrency is not None else None,
        limit_per_s=scenario.limit.requests_per_second if scenario.limit else None,
        planned=len(measured),
        warmup=len(before),
        sessions=len(sessions(measured)) if waits else None,
        # A trace's keys are its stage's own; a shared prefix may be in the cache from earlier stages and the warm-up.
        reuse=reuse(
            met(measured, stage.concurrency, stage.duration),
            before=() if traced is not None else (*earlier, *warm),
            curve=source is not None or scenario.families_of(stage) is not None,
        ),
    )
    return _Built(StagePlan(spec=spec, warmup=warm, requests=measured), notes)


def _measured(
    scenario: Scenario, stage: Stage, traced: Fitted | None, made: Fitted | None
) -> tuple[tuple[Request, ...], tuple[str, ...]]:
    place = scenario.place(stage)
    if made is not None:
        due = _due(scenario, stage, None, sum(not turn.parents for turn in made.turns))
        return replay.requests(stage, made, made.turns, due), made.notes
    if traced is None:
        turns, notes = contents.drawn(kind_of(scenario, stage), _count(stage, place), scenario)
        content = contents.of_turns(stage.name, turns)
        return _requests(content, _due(scenario, stage, None, len(content))), notes
    chosen = replay.chosen(stage, traced)
    if stage.requests is not None and stage.requests > len(traced.turns):
        raise UserError(
            f"{place}.requests: {stage.requests}: should be at most {len(traced.turns)}, the rows of the trace that "
            "fit (see window and max_input_tokens)"
        )
    due = _due(scenario, stage, traced, sum(not turn.parents for turn in chosen)) if stage.speed is None else None
    return replay.requests(stage, traced, chosen, due), tuple(replay.notes(stage, traced, chosen))


def _burstiness(stage: Stage) -> float | None:
    if stage.rate is None:
        return None
    return 1.0 if stage.burstiness is None else stage.burstiness


def _count(stage: Stage, place: str) -> int:
    bounds = [stage.requests] if stage.requests is not None else []
    if stage.duration is not None and stage.concurrency is not None:
        bounds.append(replay.most_by_time(stage.concurrency, stage.duration))
    elif stage.duration is not None and stage.rate is not None:
        bounds.append(arrivals.count_within(stage.duration, rate_per_s=stage.rate))
    count = min(bounds)
    if count > MOST_REQUESTS:
        raise UserError(f"{place}: {count:,} requests; should be at most {MOST_REQUESTS:,}: lower rate or duration")
    return count


def _warmup(stage: Stage, traced: Fitted | None) -> int:
    if stage.warmup is not None:
        return stage.warmup
    if stage.concurrency is not None:
        return stage.concurrency
    return max(2, math.ceil(min(_rate(stage, traced), 1_000)))


def _rate(stage: Stage, traced: Fitted | None) -> float:
    """Requests per second of an open loop: its own, or the mean of the trace's rows at its speed."""
    if stage.rate is not None:
        return stage.rate
    if traced is None or stage.speed is None:
        raise ValueError("an open loop has a rate, or a speed and a trace")
    span_s = max(turn.at_s for turn in traced.turns) - traced.origin_s
    return len(traced.turns) * stage.speed / span_s if span_s > 0 else 1.0


def _warm(scenario: Scenario, stage: Stage, traced: Fitted | None, content: list[Content]) -> tuple[Request, ...]:
    return _requests(content, _due(scenario, stage, traced, len(content), warmup=True))


def _due(
    scenario: Scenario, stage: Stage, traced: Fitted | None, count: int, *, warmup: bool = False
) -> list[float] | None:
    if stage.concurrency is not None:
        return None
    cv = _burstiness(stage)
    rng = generator(scenario.seed, stage.name, "warm-up arrivals" if warmup else "arrivals")
    steady = {"rate_per_s": _rate(stage, traced), "cv": 1.0 if cv is None else cv}
    if stage.bursts is None or warmup:
        return arrivals.scheduled(count, **steady, rng=rng)
    return arrivals.bursts(count, **steady, active_s=stage.bursts.active, silent_s=stage.bursts.silent, rng=rng)


def _requests(content: list[Content], due: list[float] | None) -> tuple[Request, ...]:
    return tuple(
        Request(index=index, due_s=due[index] if due else None, runs=runs, output_tokens=output_tokens)
        for index, (runs, output_tokens) in enumerate(content)
    )
