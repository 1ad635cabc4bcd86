"""Experiments with planted truth, made in memory: a continuous-batching engine stepped in virtual time.

One step decodes a token of every running sequence and prefills what it admits; it takes

    step_s + per_sequence_s x running + per_context_s x (sum of contexts) + prefill_s x tokens + prefill2_s x tokens^2

times a factor of the block (noise, drift) and of the step. When the cache is full, the sequence admitted last is
evicted and computed again later. The client is a closed loop (or sends at due times) with a small fixed delay.
"""

import bisect
from collections import deque
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import numpy as np

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

WIRE_S = 0.0002
SCRAPE_EVERY_S = 0.25


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The step-time model and the memory of one arm."""

    step_s: float = 0.009
    per_sequence_s: float = 0.0003
    per_context_s: float = 2.8e-6
    prefill_s: float = 4.5e-4
    prefill2_s: float = 0.0
    capacity_tokens: int = 4096
    max_num_seqs: int = 64
    batch_tokens: int = 2048
    block_tokens: int = 16


@dataclass(frozen=True, kw_only=True)
class Arm:
    """An arm: its engine and what its server would tell about itself."""

    name: str
    engine: Engine = Engine()
    kv_dtype: str = "bfloat16"
    backends: tuple[BackendSeen, ...] = (BackendSeen(name="CPU_ATTN", how="assumed"),)
    flags: dict[str, str] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage and its work: (prompt tokens, output tokens) of each request."""

    spec: StageSpec
    lengths: tuple[tuple[int, int], ...]
    due_s: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Relative standard deviations: of a block, of a step; `drift` is the relative slowdown per block of the order."""

    block: float = 0.02
    step: float = 0.05
    drift: float = 0.0
    server_shift_s: float = 0.0  # what the client sees more than the server, on each event
    loop_lag_s: float = 0.0008
    client_cpu_ratio: float = 0.12
    send_lag_s: float = 0.0003


@dataclass
class _Sequence:
    index: int
    prompt: int
    output: int
    sent_s: float
    due_s: float | None
    done: int = 0
    events_s: list[float] = field(default_factory=list)

    @property
    def context(self) -> int:
        return self.prompt + self.done


@dataclass
class _Server:
    """State of one engine over a block; the timeline is what /metrics would say after each step."""

    engine: Engine
    rng: np.random.Generator
    factor: float
    noise: Noise
    now_s: float = 0.5
    waiting: deque[_Sequence] = field(default_factory=deque)
    running: list[_Sequence] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)
    timeline: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    def count(self, name: str, amount: float) -> None:
        self.counters[name] = self.counters.get(name, 0.0) + amount

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self.engine.block_tokens)

    def used(self) -> int:
        return sum(self.blocks(s.context) for s in self.running)

    def step(self) -> list[_Sequence]:
        """One engine step; the sequences that ended in it."""
        engine = self.engine
        total = engine.capacity_tokens // engine.block_tokens
        preempted = False
        while len(self.running) > 1 and sum(self.blocks(s.context + 1) for s in self.running) > total:
            self.waiting.appendleft(self.running.pop())
            self.count("preemptions", 1)
            preempted = True
        prefill = 0
        used = sum(self.blocks(s.context + 1) for s in self.running)
        while self.waiting and not preempted and len(self.running) < engine.max_num_seqs:
            head = self.waiting[0]
            need = self.blocks(head.context + 1)
            if used + need > total or (prefill and prefill + head.context > engine.batch_tokens):
                break
            self.waiting.popleft()
            self.running.append(head)
            used += need
            prefill += head.context
            if head.done == 0:
                self.count("prompt_tokens", head.prompt)
        contexts = sum(s.context for s in self.running)
        took = (
            engine.step_s
            + engine.per_sequence_s * len(self.running)
            + engine.per_context_s * contexts
            + engine.prefill_s * prefill
            + engine.prefill2_s * prefill**2
        )
        took *= self.factor * float(np.exp(self.noise.step * self.rng.standard_normal()))
        self.now_s += took
        return self._emit(prefill, used / total)

    def _emit(self, prefill: int, usage: float) -> list[_Sequence]:
        decoded = len(self.running)
        for sequence in self.running:
            if sequence.events_s:
                self.count("itl_sum_s", self.now_s - sequence.events_s[-1])
                self.count("itl_count", 1)
            else:
                self.count("ttft_sum_s", self.now_s - sequence.sent_s)
                self.count("ttft_count", 1)
            sequence.events_s.append(self.now_s)
            sequence.done += 1
        ended = [s for s in self.running if s.done >= s.output]
        self.running = [s for s in self.running if s.done < s.output]
        self.count("requests_finished", len(ended))
        self.count("generation_tokens", decoded)
        self.count("iteration_tokens_sum", decoded + max(0, prefill - 1))
        self.count("iteration_tokens_count", 1)
        gauges = {"kv_usage_ratio": usage, "running": float(decoded), "waiting": float(len(self.waiting))}
        self.timeline.append((self.now_s, {**gauges, **self.counters}))
        return ended

    def idle(self, until_s: float) -> None:
        gauges = {"kv_usage_ratio": 0.0, "running": 0.0, "waiting": 0.0}
        self.timeline.append((self.now_s + 1e-6, {**gauges, **self.counters}))
        self.now_s = max(self.now_s, until_s)


@dataclass
class _Client:
    """Sends a stage's work: a closed loop refills on each end, an open loop waits for due times."""

    server: _Server
    stage: Stage
    noise: Noise
    started_s: float
    upcoming: int = 0

    @property
    def left(self) -> bool:
        """Whether there is more to send."""
        duration = self.stage.spec.duration_s
        over = duration is not None and self.server.now_s - self.started_s > duration
        return not over and self.upcoming < len(self.stage.lengths)

    def send(self, at_s: float, due_s: float | None = None) -> None:
        prompt, output = self.stage.lengths[self.upcoming]
        self.server.waiting.append(_Sequence(self.upcoming, prompt, output, at_s, due_s))
        self.upcoming += 1

    def send_due(self) -> None:
        """Open loop: everything that is due; an idle server waits for the next one."""
        if not self.left:
            return
        if not self.server.running and not self.server.waiting:
            self.server.idle(self.started_s + self.stage.due_s[self.upcoming])
        while self.left and self.started_s + self.stage.due_s[self.upcoming] <= self.server.now_s:
            due = self.started_s + self.stage.due_s[self.upcoming]
            self.send(due + self.noise.send_lag_s, due)


def _drive(server: _Server, stage: Stage, noise: Noise) -> tuple[list[Sample], StageMark]:
    """Sends the stage's work to the server in virtual time."""
    started = server.now_s
    client = _Client(server, stage, noise, started)
    samples: list[Sample] = []
    for _ in range(min(stage.spec.concurrency or 0, len(stage.lengths))):
        client.send(started)
    while True:
        if stage.spec.concurrency is None:
            client.send_due()
        if not server.running and not server.waiting:
            break
        for sequence in server.step():
            samples.append(_sample(sequence, stage.spec.name, noise))
            if stage.spec.concurrency is not None and client.left:
                client.send(server.now_s + 2 * WIRE_S)
    server.idle(server.now_s + 0.3)
    unsent = len(stage.lengths) - len(samples)
    mark = StageMark(
        stage=stage.spec.name,
        started_s=started,
        ended_s=max((s.end_s for s in samples), default=started),
        planned=len(stage.lengths),
        sent=len(samples),
        unsent=unsent,
        ok=len(samples),
        failed=0,
        stopped="duration" if unsent else None,
    )
    return samples, mark


def _sample(sequence: _Sequence, stage: str, noise: Noise) -> Sample:
    shift = WIRE_S + noise.server_shift_s
    events = tuple(at + shift for at in sequence.events_s)
    return Sample(
        index=sequence.index,
        stage=stage,
        due_s=sequence.due_s,
        sent_s=sequence.sent_s,
        first_byte_s=events[0],
        events_s=events,
        end_s=events[-1] + 0.0001,
        planned_prompt_tokens=sequence.prompt,
        planned_output_tokens=sequence.output,
        prompt_tokens=sequence.prompt,
        output_tokens=sequence.output,
        finish_reason="length",
        status=200,
    )


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
    server = _Server(arm.engine, rng, factor, noise)
    samples: list[Sample] = []
    marks: list[StageMark] = []
    for stage in stages:
        seen, mark = _drive(server, stage, noise)
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
            restart="never",
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
            restart="never",
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
