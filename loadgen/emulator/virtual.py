"""A planned stage sent to an emulated engine in virtual time: no sockets, no client to be late, no waiting.

What the client does in `drive` is done here in order of instants: a closed loop begins its next session when one has
ended, an open loop sends at due times, `after` and `think_s` hold requests back, a cap spaces them, `duration_s` ends
the sending. A request takes the profile's `front_s` to the engine and each token `WIRE_S` back.
"""

import heapq
from collections import deque
from collections.abc import Iterator, Sequence as Items
from dataclasses import dataclass, field
from typing import Any

from loadgen.emulator.arm import Emulated
from loadgen.emulator.model import Sequence
from loadgen.emulator.virtual_process import Process
from loadgen.errors import UserError
from loadgen.records import Failure, Request, Sample, StageMark, StagePlan, sessions

WIRE_S = 0.0002
CLOSE_S = 0.0001  # from the last token to the end of the response
RESEND_S = 0.0001  # from there to the stream's next request: never at the same instant
WARMUP_STREAMS = 8  # as drive.run: a warm-up without due times is a closed loop
REST_S = 0.05  # between stages


class Cap:
    """At most `limit_per_s` sends a second, evenly spaced. Ask in order of time."""

    def __init__(self, limit_per_s: float) -> None:
        self._period_s = 1 / limit_per_s
        self._free_s = 0.0

    def turn(self, at_s: float) -> float:
        """When what wants to go at `at_s` may go."""
        turn_s = max(at_s, self._free_s)
        self._free_s = turn_s + self._period_s
        return turn_s


@dataclass(slots=True, kw_only=True)
class _Call:
    request: Request
    due_s: float | None
    sent_s: float = 0.0


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
    cap: Cap | None = None
    duration_s: float | None = None
    samples: list[Sample] = field(default_factory=list)
    failed: int = 0  # in flight when the part was stopped
    tokens: int = 0  # of the requests that have ended
    _wanted: list[tuple[float, int, _Call]] = field(default_factory=list)  # not sent yet, by when they would be
    _sent: deque[_Call] = field(default_factory=deque)  # on the wire
    _queue: Iterator[tuple[Request, ...]] = field(default_factory=lambda: iter(()))  # a closed loop's sessions
    _left: dict[int, list[int]] = field(default_factory=dict)  # by request: how many of its session have not ended
    _ends: dict[int, float] = field(default_factory=dict)
    _followers: dict[int, list[Request]] = field(default_factory=dict)
    _started_s: float = 0.0
    _order: int = 0

    @property
    def planned(self) -> int:
        """How many requests there are."""
        return len(self.requests)

    @property
    def done(self) -> int:
        """Requests that have ended."""
        return len(self.samples)

    def run(self) -> StageMark:
        """Sends everything, to its end; says what became of it."""
        process, watch = self.process, self.process.watch
        self._started_s = process.now_s
        watch.begins(self)
        if self.streams is not None:
            self._queue = iter(sessions(self.requests))
            for _ in range(self.streams):
                self._refill(self._started_s)
        else:
            self._schedule()
        while not watch.stop_asked:
            self._deliver()
            if process.model.busy:
                finished = process.step()
                if finished:
                    self._ended(finished)
            elif (next_s := self._next_s()) is not None:
                process.wait(next_s)
            else:
                break
        return self._stopped() if watch.stop_asked else self._whole()

    def _whole(self) -> StageMark:
        ended_s = max((sample.end_s for sample in self.samples), default=self._started_s - self.origin_s)
        out_of_time = self.duration_s is not None and len(self.samples) < len(self.requests)
        if out_of_time and self.duration_s is not None:  # who still waited to send is turned away then, not earlier
            ended_s = max(ended_s, self._started_s + self.duration_s - self.origin_s)
        self.process.wait(self.origin_s + ended_s)
        return self._mark(ended_s, "duration" if out_of_time else None)

    def _stopped(self) -> StageMark:
        """Ends what is in flight, as a client does that hangs up."""
        now_s, model = self.process.now_s, self.process.model
        for sequence in (*model.running, *model.waiting):
            model.abort(sequence)
            self.samples.append(self._cut(_call_of(sequence), sequence.events_s, now_s))
        self.samples += [self._cut(call, (), now_s) for call in self._sent if call.sent_s <= now_s]
        self.process.tally.look(model)
        return self._mark(now_s - self.origin_s, "interrupted")

    def _mark(self, ended_s: float, stopped: str | None) -> StageMark:
        sent = len(self.samples)
        return StageMark(
            stage=self.stage,
            warmup=self.warmup,
            started_s=self._started_s - self.origin_s,
            ended_s=ended_s,
            planned=len(self.requests),
            sent=sent,
            unsent=len(self.requests) - sent,
            ok=sent - self.failed,
            failed=self.failed,
            stopped=stopped,
        )

    def _schedule(self) -> None:
        for request in self.requests:
            if request.after:
                self._hold(request)
            else:
                due_s = self._started_s + (request.due_s or 0.0)
                self._want(request, due_s, due_s)

    def _refill(self, at_s: float) -> None:
        """A stream is free: it begins the next session."""
        session = next(self._queue, ())
        left = [len(session)]
        for request in session:
            self._left[request.index] = left
            if request.after:
                self._hold(request)
            else:
                self._want(request, at_s, None)

    def _hold(self, request: Request) -> None:
        for index in set(request.after or ()) - self._ends.keys():
            self._followers.setdefault(index, []).append(request)

    def _ended_s(self, request: Request) -> float | None:
        """When the last of those that `request` waits for ended; None while one has not."""
        ends = [self._ends.get(index) for index in request.after or ()]
        return None if None in ends else max(end for end in ends if end is not None)

    def _want(self, request: Request, at_s: float, due_s: float | None) -> None:
        self._order += 1
        heapq.heappush(self._wanted, (at_s, self._order, _Call(request=request, due_s=due_s)))

    def _next_s(self) -> float | None:
        """When the next thing happens while the engine is idle."""
        instants = [self._wanted[0][0]] if self._wanted else []
        if self._sent:
            instants.append(self._sent[0].sent_s + self.process.arm.profile.front_s)
        return min(instants, default=None)

    def _deliver(self) -> None:
        """Sends what wants to be sent by now, in order of time, and hands the engine what has arrived."""
        now_s, sent, front_s = self.process.now_s, self._sent, self.process.arm.profile.front_s
        while self._wanted and self._wanted[0][0] <= now_s:
            at_s, _, call = heapq.heappop(self._wanted)
            call.sent_s = at_s if self.cap is None else self.cap.turn(at_s)
            if self.duration_s is None or call.sent_s < self._started_s + self.duration_s:
                sent.append(call)
        while sent and (arrived_s := sent[0].sent_s + front_s) <= now_s:
            call = sent.popleft()
            self.process.accept(call.request, salt=self.salt, arrived_s=arrived_s, payload=call)

    def _ended(self, finished: Items[Sequence]) -> None:
        for sequence in finished:
            sample = self._sample(sequence)
            self.samples.append(sample)
            self.tokens += sequence.produced
            end_s = sample.end_s + self.origin_s
            self._ends[sample.index] = end_s
            for follower in self._followers.pop(sample.index, ()):
                if (last_s := self._ended_s(follower)) is not None:
                    self._follow(follower, last_s)
            if self.streams is not None:
                left = self._left.pop(sample.index)
                left[0] -= 1
                if left[0] == 0:
                    self._refill(end_s + RESEND_S)

    def _follow(self, request: Request, ended_s: float) -> None:
        at_s = ended_s + request.think_s
        if self.streams is not None:
            self._want(request, at_s, None)
            return
        due_s = at_s if request.due_s is None else max(at_s, self._started_s + request.due_s)
        self._want(request, due_s, due_s)

    def _sample(self, sequence: Sequence) -> Sample:
        return self._told(
            _call_of(sequence),
            sequence.events_s,
            prompt_tokens=sequence.prompt_tokens,
            output_tokens=sequence.produced,
            cached_tokens=sequence.cached_tokens if self.process.model.limits.prefix_caching else None,
            finish_reason="length",
            status=200,
        )

    def _cut(self, call: _Call, events_s: Items[float], now_s: float) -> Sample:
        self.failed += 1
        seen = [at_s for at_s in events_s if at_s + WIRE_S <= now_s]
        failure = Failure(kind="stopped", detail="in flight when the simulation was stopped")
        return self._told(call, seen, end_s=now_s, status=200 if seen else None, failure=failure)

    def _told(self, call: _Call, events_s: Items[float], *, end_s: float | None = None, **ended: Any) -> Sample:
        shift_s = WIRE_S - self.origin_s
        events = tuple([at_s + shift_s for at_s in events_s])
        return Sample(
            index=call.request.index,
            stage=self.stage,
            warmup=self.warmup,
            due_s=None if call.due_s is None else call.due_s - self.origin_s,
            sent_s=call.sent_s - self.origin_s,
            first_byte_s=events[0] if events else None,
            events_s=events,
            end_s=events[-1] + CLOSE_S if end_s is None else end_s - self.origin_s,
            planned_prompt_tokens=call.request.prompt_tokens,
            planned_output_tokens=call.request.output_tokens,
            **ended,
        )


def _call_of(sequence: Sequence) -> _Call:
    if not isinstance(sequence.payload, _Call):
        raise TypeError("a sequence of another client")
    return sequence.payload


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
    cap = None if spec.limit_per_s is None else Cap(spec.limit_per_s)
    for requests, warmup in ((stage.warmup, True), (stage.requests, False)):
        if (warmup and not requests) or process.watch.stop_asked:
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
            cap=cap,
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
