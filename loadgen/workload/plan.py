"""A scenario (and its trace) -> every request that will be sent, in order. Pure, from one seed.

Two calls with equal arguments give equal plans with equal digests, in any process. Every stage draws from its own
streams, so that changing one stage leaves the others as they were.
"""

import math
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from loadgen.errors import UserError
from loadgen.records import Plan, Request, Role, StagePlan, StageSpec, Trace
from loadgen.workload import arrivals, contents
from loadgen.workload.contents import Content
from loadgen.workload.fit import Fitted, fitted
from loadgen.workload.model import Scenario, Stage
from loadgen.workload.seeding import generator

# A closed loop bounded by time alone is planned as if a request took 50 ms at least: enough for any but an emulator,
# and a stage that uses up its plan ends early, which shows (planned = sent).
REQUESTS_PER_STREAM_S = 20
MOST_REQUESTS = 1_000_000
MOST_BY_TIME = 100_000


class _Built(NamedTuple):
    plan: StagePlan
    notes: tuple[str, ...]


def build(scenario: Scenario, trace: Trace | None = None) -> Plan:
    """The plan of `scenario`; `trace` is what `workload.trace` names, as read.

    Notes tell, with counts, what was left out or cut. Raises UserError where the trace has too few rows.
    """
    if scenario.workload.trace is not None and trace is None:
        raise ValueError("the scenario takes its rows from a trace: give it")
    rows = fitted(trace, scenario.workload) if trace is not None and scenario.workload.trace is not None else None
    built = [_stage(scenario, number, rows) for number in range(len(scenario.stages))]
    stages = tuple(stage.plan for stage in built)
    return Plan(
        scenario=scenario.name,
        seed=scenario.seed,
        digest=_digest(scenario, stages),
        stages=stages,
        notes=(*(rows.notes if rows else ()), *(note for stage in built for note in stage.notes)),
    )


def _digest(scenario: Scenario, stages: tuple[StagePlan, ...]) -> str:
    """Over all that shapes the work: seed, endpoint, stages with every request. Not over names and salts."""
    digest = blake2b(msgspec.json.encode((scenario.seed, scenario.workload.endpoint)), digest_size=16)
    encoder = msgspec.json.Encoder()
    for stage in stages:
        digest.update(encoder.encode(stage))
    return digest.hexdigest()


def _stage(scenario: Scenario, number: int, rows: Fitted | None) -> _Built:
    stage = scenario.stages[number]
    place = f"{scenario.name}: stages[{number}] ({stage.name})"
    traced = rows if scenario.lengths_of(stage) is None else None
    count = _count(stage, traced, place)
    warmup = _warmup(stage, traced)
    notes: tuple[str, ...] = ()
    if traced is not None:
        measured = contents.of_rows(stage.name, traced.rows[:count])
        before = contents.like_rows(scenario.seed, stage.name, traced.rows, warmup)
    else:
        measured, notes = contents.drawn(scenario, stage, count)
        before, _ = contents.drawn(scenario, stage, warmup, warmup=True)
    spec = StageSpec(
        name=stage.name,
        role=_role(stage),
        concurrency=stage.concurrency,
        rate_per_s=stage.rate,
        burstiness_cv=_burstiness(stage),
        speed=stage.speed,
        # An open loop's plan ends with its duration already: a stop there would cut off requests that are only late.
        duration_s=stage.duration if stage.concurrency is not None else None,
        limit_per_s=scenario.limit.requests_per_second if scenario.limit else None,
        planned=len(measured),
        warmup=len(before),
    )
    plan = StagePlan(
        spec=spec,
        warmup=_requests(before, _due(scenario, stage, traced, len(before), warmup=True)),
        requests=_requests(measured, _due(scenario, stage, traced, len(measured))),
    )
    return _Built(plan, notes)


def _role(stage: Stage) -> Role:
    if stage.concurrency is None:
        return "open_loop"
    return "one_stream" if stage.concurrency == 1 else "saturated"


def _burstiness(stage: Stage) -> float | None:
    if stage.rate is None:
        return None
    return 1.0 if stage.burstiness is None else stage.burstiness


def _count(stage: Stage, traced: Fitted | None, place: str) -> int:
    bounds = [stage.requests] if stage.requests is not None else []
    if stage.duration is not None:
        bounds.append(_within(stage, stage.duration, traced))
    count = min(bounds, default=MOST_REQUESTS)
    if traced is None:
        if count > MOST_REQUESTS:
            raise UserError(f"{place}: {count:,} requests; should be at most {MOST_REQUESTS:,}: lower rate or duration")
        return count
    if stage.requests is not None and count > len(traced.rows):
        raise UserError(
            f"{place}.requests: {count}: should be at most {len(traced.rows)}, the rows of the trace that fit "
            "(see window and max_input_tokens)"
        )
    return min(count, len(traced.rows))


def _within(stage: Stage, duration_s: float, traced: Fitted | None) -> int:
    if stage.concurrency is not None:
        return max(
            stage.concurrency, min(MOST_BY_TIME, math.ceil(stage.concurrency * duration_s * REQUESTS_PER_STREAM_S))
        )
    if stage.rate is not None:
        return arrivals.count_within(duration_s, rate_per_s=stage.rate)
    if traced is None or stage.speed is None:
        raise ValueError("a stage has concurrency, rate, or speed with a trace")
    end_s = traced.origin_s + duration_s * stage.speed
    return max(1, sum(row.at_s < end_s for row in traced.rows))


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
    span_s = traced.rows[-1].at_s - traced.origin_s
    return len(traced.rows) * stage.speed / span_s if span_s > 0 else 1.0


def _due(
    scenario: Scenario, stage: Stage, traced: Fitted | None, count: int, *, warmup: bool = False
) -> list[float] | None:
    if stage.concurrency is not None:
        return None
    if stage.speed is not None and traced is not None and not warmup:
        instants = (row.at_s for row in traced.rows[:count])
        return arrivals.replayed(instants, origin_s=traced.origin_s, speed=stage.speed)
    cv = _burstiness(stage)
    rng = generator(scenario.seed, stage.name, "warm-up arrivals" if warmup else "arrivals")
    return arrivals.scheduled(count, rate_per_s=_rate(stage, traced), cv=1.0 if cv is None else cv, rng=rng)


def _requests(content: list[Content], due: list[float] | None) -> tuple[Request, ...]:
    return tuple(
        Request(index=index, due_s=due[index] if due else None, runs=runs, output_tokens=output_tokens)
        for index, (runs, output_tokens) in enumerate(content)
    )
