"""Experiments with planted truth, made in memory: a continuous-batching engine stepped in virtual time.

One step decodes a token of every running sequence and prefills what it admits; it takes

    step_s + per_sequence_s x running + per_context_s x (sum of contexts) + prefill_s x tokens + prefill2_s x tokens^2

times a factor of the block (noise, drift) and of the step. When the cache is full, the sequence admitted last is
evicted and computed again later. The client is a closed loop (or sends at due times) with a small fixed delay.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from loadgen.records import Sample, StageMark, StageSpec

WIRE_S = 0.0002


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
class Server:
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

    server: Server
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


def drive(server: Server, stage: Stage, noise: Noise) -> tuple[list[Sample], StageMark]:
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
