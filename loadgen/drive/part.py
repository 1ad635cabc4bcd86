"""The requests of one part of a stage (its warm-up, or the stage proper), sent in a closed or an open loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from loadgen.clock import Clock
from loadgen.drive.bodies import Bodies
from loadgen.drive.client import Client
from loadgen.drive.pacing import Cap, Gate
from loadgen.records import Request, Sample, StageMark


class Progress:
    """Live counters of the part that runs, for a display to read at any time."""

    def __init__(self) -> None:
        self.stage = ""
        self.warmup = False
        self.started_s = 0.0
        self.planned = 0
        self.sent = 0
        self.ok = 0
        self.failed = 0
        self.tokens_done = 0
        self.events_in_flight: Callable[[], int] = int

    @property
    def done(self) -> int:
        """Requests that have ended."""
        return self.ok + self.failed

    @property
    def in_flight(self) -> int:
        """Requests that have been sent and have not ended."""
        return self.sent - self.done

    @property
    def tokens(self) -> int:
        """Output tokens so far: as the server counted them for ended requests, events with content for the others."""
        return self.tokens_done + self.events_in_flight()

    def begin(self, stage: str, warmup: bool, planned: int, started_s: float) -> None:
        """Counts from zero for the next part."""
        self.stage, self.warmup, self.planned, self.started_s = stage, warmup, planned, started_s
        self.sent = self.ok = self.failed = self.tokens_done = 0

    def count(self, sample: Sample) -> None:
        """Counts a request that has ended."""
        if sample.ok:
            self.ok += 1
        else:
            self.failed += 1
        self.tokens_done += len(sample.events_s) if sample.output_tokens is None else sample.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Road:
    """What requests go through on their way: the gate, the cap, the client, and the sink for their samples."""

    client: Client
    clock: Clock
    gate: Gate
    bodies: Bodies
    sink: Callable[[Sample], None]
    cap: Cap | None = None


class Part:
    """Sends `requests` down the `road` and counts what becomes of them in `progress`."""

    def __init__(
        self, requests: Sequence[Request], *, stage: str, warmup: bool, road: Road, progress: Progress
    ) -> None:
        self._requests = requests
        self._stage = stage
        self._warmup = warmup
        self._road = road
        self._progress = progress
        self._stopped: str | None = None
        self._started_s = road.clock.now()
        self._ends: dict[int, asyncio.Future[float]] = {}
        self._followers: dict[int, list[Request]] = {}
        progress.begin(stage, warmup, len(requests), self._started_s)

    def interrupt(self) -> None:
        """Sends no more and ends what is in flight."""
        self._stopped = "interrupted"
        self._road.gate.close()
        self._road.client.abort()

    def time_is_up(self) -> None:
        """Sends no more; what is in flight may end."""
        if self._road.gate.is_open:
            self._stopped = "duration"
            self._road.gate.close()

    def mark(self) -> StageMark:
        """What became of the requests, now that none is in flight."""
        progress = self._progress
        unsent = len(self._requests) - progress.sent
        return StageMark(
            stage=self._stage,
            warmup=self._warmup,
            started_s=self._started_s,
            ended_s=self._road.clock.now(),
            planned=len(self._requests),
            sent=progress.sent,
            unsent=unsent,
            ok=progress.ok,
            failed=progress.failed,
            stopped=None if self._stopped == "duration" and not unsent else self._stopped,
        )

    async def closed_loop(self, streams: int) -> None:
        """Keeps `streams` requests in flight, in plan order.

        A stream whose next request has to wait (`after`, `think_s`) waits with it, as a user who thinks does.
        """
        self._await()
        queue = iter(self._requests)

        async def stream() -> None:
            for request in queue:
                if not await self._ready(request):
                    return
                await self._send(request, None)

        async with _together() as group:
            for _ in range(min(streams, len(self._requests))):
                group.create_task(stream())

    async def open_loop(self) -> None:
        """Sends each request at its due time, whatever became of the others.

        One that has to wait for others (`after`) is due at the later of its own due time and the end of the last of
        them plus `think_s`: how long the server took is not the client's delay.
        """
        self._await()
        self._followers = {index: [] for index in self._ends}
        for request in self._requests:
            for index in set(request.after or ()):
                self._followers[index].append(request)
        async with _together() as group:
            for request in self._requests:
                if not request.after:
                    due_s = self._started_s + (request.due_s or 0.0)
                    if not await self._road.gate.until(due_s):
                        break
                    group.create_task(self._send(request, due_s, group))

    async def _send(self, request: Request, due_s: float | None, group: asyncio.TaskGroup | None = None) -> None:
        road = self._road
        if road.cap is not None:
            await self._turn(road.cap)
        if not road.gate.is_open:
            return
        body = road.bodies.take(request)
        self._progress.sent += 1
        sample = await road.client.send(body, request=request, stage=self._stage, warmup=self._warmup, due_s=due_s)
        self._progress.count(sample)
        road.sink(sample)
        if request.index in self._ends:
            self._ends[request.index].set_result(sample.end_s)
        if group is not None:
            for follower in self._followers.pop(request.index, ()):
                before = [self._ends[index] for index in follower.after or ()]
                if all(end.done() for end in before):
                    group.create_task(self._follow(follower, max(end.result() for end in before), group))

    async def _turn(self, cap: Cap) -> None:
        """Waits for the cap, but no longer than anything may be sent: a long line would keep an ended part alive."""
        turn = asyncio.ensure_future(cap.turn())
        try:
            await self._road.gate.first(turn)
        finally:
            turn.cancel()

    async def _follow(self, request: Request, ended_s: float, group: asyncio.TaskGroup) -> None:
        due_s = ended_s + request.think_s
        if request.due_s is not None:
            due_s = max(due_s, self._started_s + request.due_s)
        if await self._road.gate.until(due_s):
            await self._send(request, due_s, group)

    async def _ready(self, request: Request) -> bool:
        """Waits until `request` may be sent; False if nothing may be sent any more."""
        gate = self._road.gate
        if not request.after:
            return gate.is_open
        last_s = 0.0
        for index in request.after:
            ended_s = await gate.first(self._ends[index])
            if ended_s is None:
                return False
            last_s = max(last_s, ended_s)
        return await gate.until(last_s + request.think_s)

    def _await(self) -> None:
        """Makes a future of each end that others wait for.

        Raises ValueError if a request waits for one that does not come before it: that would never end.
        """
        loop = asyncio.get_running_loop()
        seen: set[int] = set()
        for request in self._requests:
            for index in request.after or ():
                if index not in seen:
                    raise ValueError(f"request {request.index} waits for {index}, which does not come before it")
                if index not in self._ends:
                    self._ends[index] = loop.create_future()
            seen.add(request.index)


@asynccontextmanager
async def _together() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that raises the first error itself, not a group of errors."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
