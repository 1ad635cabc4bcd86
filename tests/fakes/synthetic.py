"""Whole experiments in memory, with planted truth: blocks of `batching`'s engine with facts, scrapes and health."""

import bisect
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import numpy as np
from fakes.batching import Engine, Noise, Server, Stage, drive

from loadgen.records import (
    ArmSpec,
    BackendSeen,
    Block,
    BlockEnd,
    EngineScrape,
    Experiment,
    ExperimentManifest,
    Failure,
    FailureKind,
    Health,
    HostFacts,
    Manifest,
    Sample,
    Scrape,
    ServerFacts,
    Slo,
    StageMark,
    StageSpec,
)

R = TypeVar("R", bound=msgspec.Struct)

SCRAPE_EVERY_S = 0.25


@dataclass(frozen=True, kw_only=True)
class Arm:
    """An arm: its engine and what its server would tell about itself."""

    name: str
    engine: Engine = field(default_factory=Engine)
    kv_dtype: str = "bfloat16"
    backends: tuple[BackendSeen, ...] = (BackendSeen(name="CPU_ATTN", how="assumed"),)
    flags: dict[str, str] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)


def _scrapes(timeline: list[tuple[float, dict[str, float]]], until_s: float) -> tuple[Scrape, ...]:
    instants = [at for at, _ in timeline]
    found = []
    for at in np.arange(0.25, until_s, SCRAPE_EVERY_S):
        position = bisect.bisect_right(instants, float(at)) - 1
        zero = {"kv_usage_ratio": 0.0, "running": 0.0, "waiting": 0.0}
        values = {"preemptions": 0.0, **(timeline[position][1] if position >= 0 else zero)}
        found.append(Scrape(at_s=float(at), took_s=0.004, engines=(EngineScrape(engine="0", values=values),)))
    return tuple(found)


def _health(until_s: float, noise: Noise, rng: np.random.Generator) -> tuple[Health, ...]:
    return tuple(
        Health(
            at_s=float(at),
            interval_s=SCRAPE_EVERY_S,
            loop_lag_max_s=float(noise.loop_lag_s * np.exp(0.3 * rng.standard_normal())),
            cpu_s=noise.client_cpu_ratio * SCRAPE_EVERY_S,
            rss_bytes=80_000_000,
            in_flight=0,
        )
        for at in np.arange(0.25, until_s, SCRAPE_EVERY_S)
    )


def _facts(arm: Arm, port: int) -> ServerFacts:
    facts = ServerFacts(
        engine="vllm",
        version="0.32.0",
        url=f"http://127.0.0.1:{port}",
        model="tiny",
        max_model_len=2048,
        argv=("vllm", "serve", "tiny", "--kv-cache-dtype", arm.kv_dtype, "--port", str(port)),
        kv_dtype_asked=arm.kv_dtype,
        kv_dtype=arm.kv_dtype,
        kv_dtype_how="endpoint",
        capacity_tokens=arm.engine.capacity_tokens,
        capacity_how="endpoint",
        block_tokens=arm.engine.block_tokens,
        bytes_per_token=32768.0 * 4096 / arm.engine.capacity_tokens,
        max_num_seqs=arm.engine.max_num_seqs,
        prefix_caching=False,
        backends=arm.backends,
        device="cpu",
        ready_after_s=31.0,
        host=HostFacts(cpu="EPYC", cores=2, os="Linux"),
    )
    return replace_record(facts, **arm.facts)


def block(arm: Arm, stages: tuple[Stage, ...], place: "Place", noise: Noise, seed: int) -> Block:
    """One pass over the stages on one arm."""
    rng = np.random.default_rng((seed, place.order))
    factor = float(np.exp(noise.block * rng.standard_normal() + noise.drift * place.order))
    server = Server(arm.engine, rng, factor, noise)
    samples: list[Sample] = []
    marks: list[StageMark] = []
    for stage in stages:
        seen, mark = drive(server, stage, noise)
        samples += seen
        marks.append(mark)
    until = server.now_s + 0.3
    return Block(
        manifest=Manifest(
            loadgen="0.1.0",
            scenario="synthetic",
            plan_digest="d1",
            seed=seed,
            salt=f"salt-{place.order}",
            arm=arm.name,
            repeat=place.repeat,
            order=place.order,
            restart="each-block",
            url="http://127.0.0.1:8100",
            started_at="2026-01-01T00:00:00Z",
            stages=tuple(stage.spec for stage in stages),
        ),
        facts=_facts(arm, 8100 + place.arm),
        marks=tuple(marks),
        samples=tuple(samples),
        scrapes=_scrapes(server.timeline, until),
        health=_health(until, noise, rng),
        end=BlockEnd(ended_s=until, how="complete"),
    )


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a block stands in the experiment."""

    arm: int
    repeat: int
    order: int


def mirrored(arms: int, repeats: int) -> tuple[int, ...]:
    """A B B A A B ...: the arm number of each block."""
    return tuple(arm for repeat in range(repeats) for arm in (range(arms) if repeat % 2 == 0 else range(arms)[::-1]))


def experiment(
    arms: tuple[Arm, ...],
    stages: tuple[Stage, ...],
    *,
    repeats: int = 4,
    noise: Noise | None = None,
    seed: int = 1,
    slo: Slo | None = None,
) -> Experiment:
    """All blocks of an experiment, in mirrored order; every arm gets the same work."""
    order = mirrored(len(arms), repeats)
    seen = [0] * len(arms)
    blocks = []
    for position, number in enumerate(order):
        place = Place(arm=number, repeat=seen[number], order=position)
        seen[number] += 1
        blocks.append(block(arms[number], stages, place, noise or Noise(), seed))
    return Experiment(
        manifest=ExperimentManifest(
            loadgen="0.1.0",
            command="loadgen compare synthetic " + " ".join(f"--arm {arm.name}" for arm in arms),
            scenario="synthetic",
            scenario_text="name: synthetic\n",
            plan_digest="d1",
            arms=tuple(
                ArmSpec(name=arm.name, engine="vllm", flags=arm.flags or {"kv-cache-dtype": arm.kv_dtype})
                for arm in arms
            ),
            order=order,
            restart="each-block",
            slo=slo or Slo(),
            started_at="2026-01-01T00:00:00Z",
            client_host=HostFacts(cpu="EPYC", cores=2, os="Linux"),
        ),
        blocks=tuple(blocks),
        path="runs/synthetic",
    )


def lengths(count: int, prompt: tuple[int, int], output: tuple[int, int], seed: int = 7) -> tuple[tuple[int, int], ...]:
    """Lengths drawn log-uniformly between the two bounds, both included."""
    rng = np.random.default_rng(seed)

    def draw(low: int, high: int) -> list[int]:
        return [round(float(v)) for v in np.exp(rng.uniform(np.log(low), np.log(high), count))]

    return tuple(zip(draw(*prompt), draw(*output), strict=True))


def one_stream(work: tuple[tuple[int, int], ...]) -> Stage:
    """A closed loop of one."""
    return Stage(spec=StageSpec(name="one-stream", role="one_stream", concurrency=1, planned=len(work)), lengths=work)


def saturated(work: tuple[tuple[int, int], ...], concurrency: int = 32, duration_s: float | None = None) -> Stage:
    """A closed loop of many."""
    spec = StageSpec(
        name="saturated", role="saturated", concurrency=concurrency, planned=len(work), duration_s=duration_s
    )
    return Stage(spec=spec, lengths=work)


def open_loop(work: tuple[tuple[int, int], ...], rate_per_s: float, seed: int = 3) -> Stage:
    """Poisson arrivals."""
    gaps = np.random.default_rng(seed).exponential(1 / rate_per_s, len(work))
    spec = StageSpec(name="open", role="open_loop", rate_per_s=rate_per_s, burstiness_cv=1.0, planned=len(work))
    return Stage(spec=spec, lengths=work, due_s=tuple(float(at) for at in np.cumsum(gaps)))


BF16 = Arm(name="bf16", engine=Engine())
FP8 = Arm(
    name="fp8",
    kv_dtype="fp8",
    engine=Engine(step_s=0.0092, per_context_s=3.0e-6, prefill_s=6.0e-4, capacity_tokens=8192),
)


def demo(*, repeats: int = 4, seed: int = 1, arms: tuple[Arm, ...] = (BF16, FP8)) -> Experiment:
    """What the demo on a small CPU machine looks like: capacity doubles, steps and prefill get slower."""
    return experiment(
        arms,
        (one_stream(lengths(8, (64, 1500), (96, 128))), saturated(lengths(100, (64, 256), (64, 256)))),
        repeats=repeats,
        seed=seed,
    )


def edited(run: Experiment, number: int, **changes: object) -> Experiment:
    """A copy of the experiment in which block `number` has some fields changed."""
    blocks = list(run.blocks)
    blocks[number] = replace_record(blocks[number], **changes)
    return replace_record(run, blocks=tuple(blocks))


def failing(sample: Sample, kind: FailureKind = "truncated") -> Sample:
    """The same request, failed after its events."""
    return replace_record(sample, failure=Failure(kind=kind), finish_reason=None)


def replace_record(record: R, **changes: object) -> R:
    """A copy of a record with some fields changed."""
    return msgspec.structs.replace(record, **changes)
