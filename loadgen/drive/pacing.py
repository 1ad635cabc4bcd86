"""Waiting for absolute instants, and a cap on the rate. The schedule itself is the plan's."""

import asyncio
from typing import TypeVar

from asyncio_throttle.throttler import Throttler

from loadgen.clock import Clock

# epoll counts in whole milliseconds and rounds up, so that a timer alone is late by up to one: the timer is set this
# much early and the rest is waited for in turns of the event loop, which go on serving sockets.
FINE_S = 0.001

T = TypeVar("T")


class Gate:
    """Lets senders through at their instants until it is closed; then everyone who waits is turned away."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._closed = asyncio.get_running_loop().create_future()
        self._waiting: set[asyncio.Future[bool]] = set()

    @property
    def is_open(self) -> bool:
        """False once nothing may be sent any more."""
        return not self._closed.done()

    def close(self) -> None:
        """Turns away everyone who waits and who will come; safe to call twice."""
        if self.is_open:
            self._closed.set_result(None)
        for future in self._waiting:
            if not future.done():
                future.set_result(False)

    async def until(self, at_s: float) -> bool:
        """True at the instant `at_s` of the run's clock, at once if that has passed; False if the gate closed first."""
        due = self._clock.origin + at_s
        if self.is_open and self._clock.source() < due - FINE_S:
            await self._timer(due - FINE_S)
        while self.is_open and (now := self._clock.source()) < due:
            await asyncio.sleep(0)
            if self._clock.source() == now:  # a clock that stands still between turns jumps from timer to timer
                await self._timer(due)
        return self.is_open

    async def first(self, future: "asyncio.Future[T]") -> T | None:
        """The future's result, or None if the gate closed first. The future is left as it is."""
        if self.is_open:
            await asyncio.wait((future, self._closed), return_when=asyncio.FIRST_COMPLETED)
        return future.result() if self.is_open and future.done() else None

    async def _timer(self, at: float) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting.add(future)
        handle = loop.call_at(at, _ring, future)
        try:
            await future
        finally:
            handle.cancel()
            self._waiting.discard(future)


class Cap:
    """At most `limit_per_s` sends a second, evenly spaced: it protects a shared server and paces nothing.

    asyncio-throttle lets a whole period's quota through at once; a quota of one in a period of 1/limit spaces it.
    One sender asks at a time, so that the others wait in line instead of polling.
    """

    def __init__(self, limit_per_s: float) -> None:
        period_s = 1.0 / limit_per_s
        self._throttler = Throttler(rate_limit=1, period=period_s, retry_interval=min(period_s / 10, 0.005))
        self._line = asyncio.Lock()

    async def turn(self) -> None:
        """Returns when one more may be sent."""
        async with self._line:
            await self._throttler.acquire()


def _ring(future: "asyncio.Future[bool]") -> None:
    if not future.done():
        future.set_result(True)
