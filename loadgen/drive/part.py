"""The requests of one part of a stage (its warm-up, or the stage proper), sent in a closed or an open loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from loadgen.clock import Clock
from loadgen.drive.bodies import Bodies
from loadgen.drive.client import Client
from loadgen.drive.pacing import Cap, Gate
from loadgen.records import Request, Sample, StageMark, sessions


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
        self._paced = False
        self._ends: dict[int, float] = {}
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
        """Keeps `streams` sessions going, in plan order: a stream takes the next when all of one has ended.

        A request that waits for none, and that none waits for, is a session by itself, so that without `after` this
        many requests are in flight. In a session each is sent when those that it waits for have ended, plus `think_s`;
        a stream waits with it, as a user who thinks does. Sessions that fan out have several in flight.
        """
        self._await()
        groups = sessions(self._requests)
        queue = iter(groups)

        async def stream() -> None:
            for session in queue:
                if not self._road.gate.is_open:
                    return
                if len(session) == 1:
                    await self._send(session[0], None)
                else:
                    await self._session(session)

        async with _together() as group:
            for _ in range(min(streams, len(groups))):
                group.create_task(stream())

    async def open_loop(self) -> None:
        """Sends each request at its due time, whatever became of the others.

        One that has to wait for others (`after`) is due at the later of its own due time and the end of the last of
        them plus `think_s`: how long the server took is not the client's delay.
        """
        self._await()
        self._paced = True
        async with _together() as group:
            for request in self._requests:
                if not request.after:
                    due_s = self._started_s + (request.due_s or 0.0)
                    if not await self._road.gate.until(due_s):
                        break
                    group.create_task(self._send(request, due_s, group))

    async def _session(self, session: Sequence[Request]) -> None:
        """Sends those that wait for none; the others follow."""
        async with _together() as group:
            for request in session:
                if not request.after:
                    group.create_task(self._send(request, None, group))

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
        if group is None or request.index not in self._followers:
            return
        self._ends[request.index] = sample.end_s
        for follower in self._followers.pop(request.index):
            before = [self._ends.get(index) for index in follower.after or ()]
            ends = [end_s for end_s in before if end_s is not None]
            if len(ends) == len(before):
                group.create_task(self._follow(follower, max(ends), group))

    async def _turn(self, cap: Cap) -> None:
        """Waits for the cap, but no longer than anything may be sent: a long line would keep an ended part alive."""
        turn = asyncio.ensure_future(cap.turn())
        try:
            await self._road.gate.first(turn)
        finally:
            turn.cancel()

    async def _follow(self, request: Request, ended_s: float, group: asyncio.TaskGroup) -> None:
        due_s = ended_s + request.think_s
        if self._paced and request.due_s is not None:
            due_s = max(due_s, self._started_s + request.due_s)
        if await self._road.gate.until(due_s):
            await self._send(request, due_s if self._paced else None, group)

    def _await(self) -> None:
        """Notes who waits for whom.

        Raises ValueError if a request waits for one that does not come before it: that would never end.
        """
        seen: set[int] = set()
        for request in self._requests:
            for index in set(request.after or ()):
                if index not in seen:
                    raise ValueError(f"request {request.index} waits for {index}, which does not come before it")
                self._followers.setdefault(index, []).append(request)
            seen.add(request.index)


@asynccontextmanager
async def _together() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that raises the first error itself, not a group of errors."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
