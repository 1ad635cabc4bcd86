"""A planned stage sent to an emulated engine in virtual time: no sockets, no client to be late, no waiting.

What the client does in `drive` is done here in order of instants: a closed loop sends its next request when one ends,
an open loop sends at due times, `after` and `think_s` hold requests back, `duration_s` ends the sending. A request
takes the profile's `front_s` to the engine and each token `WIRE_S` back.
"""

import heapq
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from loadgen.emulator.arm import Emulated
from loadgen.emulator.contents import block_contents
from loadgen.emulator.model import Model, Sequence, Step
from loadgen.emulator.tally import Tally
from loadgen.errors import UserError
from loadgen.records import Request, Sample, Scrape, StageMark, StagePlan

WIRE_S = 0.0002
CLOSE_S = 0.0001  # from the last token to the end of the response
RESEND_S = 0.0001  # from there to the stream's next request: never at the same instant
WARMUP_STREAMS = 8  # as drive.run: a warm-up without due times is a closed loop
REST_S = 0.05  # between stages


class Process:
    """An emulated engine with its clock, its account and what a scraper reads of it. `now_s` is machine time."""

    def __init__(self, arm: Emulated, *, seed: tuple[int, ...], machine_seed: tuple[int, ...] = (0,)) -> None:
        self.arm = arm
        self.model: Model = arm.model(seed=seed, machine_seed=machine_seed)
        self.tally = Tally()
        self.now_s = 0.0
        self.scrapes: list[Scrape] = []
        self._origin_s = 0.0
        self._every_s = 0.25
        self._next_s = 0.0
        self._served = 0

    def begin(self, at_s: float, scrape_interval_s: float) -> None:
        """A block begins at machine time `at_s`: scrapes are on its clock."""
        self.now_s = self._origin_s = self._next_s = at_s
        self._every_s = scrape_interval_s
        self.scrapes = []

    def accept(self, sequence: Sequence) -> None:
        """A request arrives."""
        self._served += 1
        self.model.add(sequence)

    @property
    def served(self) -> int:
        """Requests so far: a number that no two of them share."""
        return self._served

    def step(self) -> Step:
        """One engine step from now on; the clock stands at its end."""
        step = self.model.step(self.now_s)
        self._read(step.ended_s)
        self.tally.note(step, self.model)
        self.now_s = step.ended_s
        return step

    def wait(self, until_s: float) -> None:
        """Nothing to do until then."""
        self._read(until_s)
        self.now_s = max(self.now_s, until_s)

    def _read(self, until_s: float) -> None:
        while self._next_s <= until_s:
            at_s = self._next_s - self._origin_s
            self.scrapes.append(Scrape(at_s=at_s, took_s=0.0, engines=(self.tally.scrape(),)))
            self._next_s += self._every_s


@dataclass(slots=True, kw_only=True)
class _Sent:
    request: Request
    sent_s: float
    due_s: float | None


@dataclass(slots=True, kw_only=True)
class Part:
    """The requests of a stage's warm-up, or of the stage proper, on their way. All instants are machine time."""

    process: Process
    requests: Items[Request]
    stage: str
    warmup: bool
    salt: str
    origin_s: float  # the block's
    streams: int | None = None
    limit_per_s: float | None = None
    duration_s: float | None = None
    samples: list[Sample] = field(default_factory=list)
    _calls: list[tuple[float, int, _Sent]] = field(default_factory=list)  # by arrival at the engine
    _next: int = 0
    _ends: dict[int, float] = field(default_factory=dict)
    _followers: dict[int, list[Request]] = field(default_factory=dict)
    _free_s: float = 0.0  # the cap lets the next request go then
    _started_s: float = 0.0
    _order: int = 0

    def run(self) -> StageMark:
        """Sends everything, to its end; says what became of it."""
        self._started_s = self.process.now_s
        if self.streams is not None:
            for _ in range(min(self.streams, len(self.requests))):
                self._refill(self._started_s)
        else:
            self._schedule()
        while True:
            self._deliver()
            if self.process.model.busy:
                self._ended(self.process.step())
            elif self._calls:
                self.process.wait(self._calls[0][0])
            else:
                break
        ended_s = max((sample.end_s for sample in self.samples), default=self._started_s - self.origin_s)
        self.process.wait(self.origin_s + ended_s)
        sent = len(self.samples)
        unsent = len(self.requests) - sent
        return StageMark(
            stage=self.stage,
            warmup=self.warmup,
            started_s=self._started_s - self.origin_s,
            ended_s=ended_s,
            planned=len(self.requests),
            sent=sent,
            unsent=unsent,
            ok=sent,
            failed=0,
            stopped="duration" if unsent else None,
        )

    def _schedule(self) -> None:
        for request in self.requests:
            if request.after is not None:
                self._followers.setdefault(request.after, []).append(request)
            else:
                due_s = self._started_s + (request.due_s or 0.0)
                self._send(request, due_s, due_s)

    def _refill(self, at_s: float) -> None:
        """A stream is free: it takes the next request, and waits with it if that one has to wait."""
        if self._next >= len(self.requests):
            return
        request = self.requests[self._next]
        self._next += 1
        if request.after is None:
            self._send(request, at_s, None)
        elif request.after in self._ends:
            self._send(request, max(at_s, self._ends[request.after] + request.think_s), None)
        else:
            self._followers.setdefault(request.after, []).append(request)

    def _send(self, request: Request, at_s: float, due_s: float | None) -> None:
        if self.limit_per_s is not None:
            at_s = max(at_s, self._free_s)
            self._free_s = at_s + 1 / self.limit_per_s
        if self.duration_s is not None and at_s > self._started_s + self.duration_s:
            return
        self._order += 1
        front_s = self.process.arm.profile.front_s
        heapq.heappush(self._calls, (at_s + front_s, self._order, _Sent(request=request, sent_s=at_s, due_s=due_s)))

    def _deliver(self) -> None:
        process = self.process
        while self._calls and self._calls[0][0] <= process.now_s:
            arrived_s, _, sent = heapq.heappop(self._calls)
            limits = process.model.limits
            contents = (
                block_contents(sent.request, owner=process.served, salt=self.salt, block_tokens=limits.block_tokens)
                if limits.prefix_caching
                else ()
            )
            process.accept(
                Sequence(
                    prompt_tokens=sent.request.prompt_tokens,
                    output_tokens=sent.request.output_tokens,
                    arrived_s=arrived_s,
                    contents=contents,
                    payload=sent,
                )
            )

    def _ended(self, step: Step) -> None:
        for sequence in step.finished:
            sent = sequence.payload
            if not isinstance(sent, _Sent):
                raise TypeError("a sequence of another client")
            sample = self._sample(sequence, sent)
            self.samples.append(sample)
            end_s = sample.end_s + self.origin_s
            self._ends[sample.index] = end_s
            for follower in self._followers.pop(sample.index, ()):
                self._follow(follower, end_s)
            if self.streams is not None:
                self._refill(end_s + RESEND_S)

    def _follow(self, request: Request, ended_s: float) -> None:
        at_s = ended_s + request.think_s
        if self.streams is not None:
            self._send(request, at_s, None)
            return
        due_s = at_s if request.due_s is None else max(at_s, self._started_s + request.due_s)
        self._send(request, due_s, due_s)

    def _sample(self, sequence: Sequence, sent: _Sent) -> Sample:
        shift_s = WIRE_S - self.origin_s
        events = tuple([at_s + shift_s for at_s in sequence.events_s])
        return Sample(
            index=sent.request.index,
            stage=self.stage,
            warmup=self.warmup,
            due_s=None if sent.due_s is None else sent.due_s - self.origin_s,
            sent_s=sent.sent_s - self.origin_s,
            first_byte_s=events[0],
            events_s=events,
            end_s=events[-1] + CLOSE_S,
            planned_prompt_tokens=sequence.prompt_tokens,
            planned_output_tokens=sequence.output_tokens,
            prompt_tokens=sequence.prompt_tokens,
            output_tokens=sequence.produced,
            cached_tokens=sequence.cached_tokens if self.process.model.limits.prefix_caching else None,
            finish_reason="length",
            status=200,
        )


def drive_stage(
    stage: StagePlan, process: Process, *, salt: str, origin_s: float
) -> tuple[list[Sample], list[StageMark]]:
    """Warm-up, then the stage proper. `origin_s`: machine time at which the block began.

    Raises UserError for a request that the engine could never hold.
    """
    samples: list[Sample] = []
    marks: list[StageMark] = []
    spec = stage.spec
    check(stage, process.arm)
    for requests, warmup in ((stage.warmup, True), (stage.requests, False)):
        if warmup and not requests:
            continue
        streams = spec.concurrency
        if streams is None and warmup and all(request.due_s is None for request in requests):
            streams = WARMUP_STREAMS
        part = Part(
            process=process,
            requests=requests,
            stage=spec.name,
            warmup=warmup,
            salt=salt,
            origin_s=origin_s,
            streams=streams,
            limit_per_s=spec.limit_per_s,
            duration_s=None if warmup else spec.duration_s,
        )
        marks.append(part.run())
        samples += part.samples
        process.wait(process.now_s + REST_S)
    return samples, marks


def check(stage: StagePlan, arm: Emulated) -> None:
    """Raises UserError if a request of `stage` is longer than the arm's max-model-len."""
    longest = max((r.prompt_tokens + r.output_tokens for r in (*stage.warmup, *stage.requests)), default=0)
    if longest > arm.max_model_len:
        raise UserError(
            f"stage {stage.spec.name}: a request of {longest:,} tokens: profile {arm.profile.name} serves at most "
            f"{arm.max_model_len:,} (max-model-len); lower max_input_tokens in the scenario or choose another profile"
        )
