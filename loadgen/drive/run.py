"""One stage of a plan, sent as planned: nothing is dropped silently, nothing piles up.

A stage's warm-up is driven to its end first, then the stage proper. Each ends with a `StageMark` whose figures add up:
planned = sent + unsent, sent = ok + failed.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from loadgen.clock import Clock
from loadgen.drive.bodies import Bodies
from loadgen.drive.client import Client
from loadgen.drive.pacing import Cap, Gate
from loadgen.drive.part import Part, Progress, Road
from loadgen.records import Request, Sample, StageMark, StagePlan, StageSpec

__all__ = ["Progress", "Stop", "drive_stage"]

# How many warm-up requests run at once in an open loop whose warm-up has no due times.
WARMUP_STREAMS = 8


class Stop:
    """How a user ends a run early: `after_stage` lets the stage end, `now` ends what is in flight."""

    def __init__(self) -> None:
        self.after_stage_asked = False
        self.now_asked = False
        self._listeners: list[Callable[[], None]] = []

    def after_stage(self) -> None:
        """No further stage is to be begun; whoever calls `drive_stage` looks at `after_stage_asked`."""
        self.after_stage_asked = True

    def now(self) -> None:
        """Nothing more is sent, and requests in flight end as failures of kind `stopped`."""
        self.after_stage_asked = self.now_asked = True
        for listener in self._listeners:
            listener()

    @contextmanager
    def tells(self, listener: Callable[[], None]) -> Iterator[None]:
        """Calls `listener` at `now`, and at once if that has been asked for already."""
        self._listeners.append(listener)
        try:
            if self.now_asked:
                listener()
            yield
        finally:
            self._listeners.remove(listener)


async def drive_stage(
    stage: StagePlan,
    *,
    client: Client,
    clock: Clock,
    body_of: Callable[[Request], bytes],
    sink: Callable[[Sample], None],
    marks: Callable[[StageMark], None],
    stop: Stop,
    progress: Progress | None = None,
) -> None:
    """Drives the warm-up and then the stage; each request's sample goes to `sink`, each part's mark to `marks`.

    With `spec.concurrency` that many requests are kept in flight; without it each is sent at its `due_s` after the
    start of its part. `spec.duration_s` ends the sending of the stage proper. Bodies are made ahead of time. What
    `sink`, `marks` or `body_of` raises ends the stage and is raised.
    """
    progress = progress or Progress()
    progress.events_in_flight = client.events_in_flight
    cap = None if stage.spec.limit_per_s is None else Cap(stage.spec.limit_per_s)
    parts = [(requests, Bodies(requests, body_of)) for requests in (stage.warmup, stage.requests)]
    for _, bodies in parts:
        await bodies.prefill()
    with _settled_memory():
        for (requests, bodies), warmup in zip(parts, (True, False), strict=True):
            if warmup and not requests:
                continue
            gate = Gate(clock)
            road = Road(client=client, clock=clock, gate=gate, bodies=bodies, sink=sink, cap=cap)
            part = Part(requests, stage=stage.spec.name, warmup=warmup, road=road, progress=progress)
            async with bodies.kept_filled():
                with stop.tells(part.interrupt), _timed(part, None if warmup else stage.spec.duration_s):
                    streams = _streams(stage.spec, requests, warmup)
                    await (part.open_loop() if streams is None else part.closed_loop(streams))
            marks(part.mark())


def _streams(spec: StageSpec, requests: Sequence[Request], warmup: bool) -> int | None:
    """How many requests to keep in flight; None for an open loop. A warm-up without due times is a closed loop."""
    if spec.concurrency is not None:
        return spec.concurrency
    if warmup and all(request.due_s is None for request in requests):
        return WARMUP_STREAMS
    return None


@contextmanager
def _timed(part: Part, duration_s: float | None) -> Iterator[None]:
    if duration_s is None:
        yield
        return
    handle = asyncio.get_running_loop().call_later(duration_s, part.time_is_up)
    try:
        yield
    finally:
        handle.cancel()


@contextmanager
def _settled_memory() -> Iterator[None]:
    """Keeps what lives already (plan, modules) out of the garbage collector's walks.

    A full collection visits every container: with a plan of 100,000 requests that stops the client, and its stamps,
    for tens of milliseconds. Collection of what the stage itself makes goes on, so that memory does not grow.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
