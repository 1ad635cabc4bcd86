"""Request bodies made ahead of their time: a long prompt takes longer to make than a request may be late."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from loadgen.records import Request

AHEAD_BYTES = 16 * 2**20
AHEAD_COUNT = 1024


class Bodies:
    """The bodies of `requests`, made in their order, up to `ahead_bytes` and `ahead_count` in advance.

    Made in this thread, one per turn of the event loop: in a second thread they would hold the interpreter's lock for
    5 ms at a time, and with it the stamps.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        body_of: Callable[[Request], bytes],
        *,
        ahead_bytes: int = AHEAD_BYTES,
        ahead_count: int = AHEAD_COUNT,
    ) -> None:
        self._requests = requests
        self._body_of = body_of
        self._ahead_bytes = ahead_bytes
        self._ahead_count = ahead_count
        self._next = 0
        self._ready: dict[int, bytes] = {}
        self._ready_bytes = 0
        self._overtaken: set[int] = set()
        self._room = asyncio.Event()

    async def prefill(self) -> None:
        """Makes as many as may lie ready."""
        while True:
            if not self._make_one():
                return
            await asyncio.sleep(0)

    @asynccontextmanager
    async def kept_filled(self) -> AsyncIterator[None]:
        """Goes on making bodies as they are taken. Raises what `body_of` raised."""
        task = asyncio.create_task(self._fill())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))
            if not task.cancelled():
                task.result()

    def take(self, request: Request) -> bytes:
        """The body of `request`, made now if it does not lie ready; take each once."""
        body = self._ready.pop(request.index, None)
        if body is None:
            self._overtaken.add(request.index)
            return self._body_of(request)
        self._ready_bytes -= len(body)
        self._room.set()
        return body

    async def _fill(self) -> None:
        while self._next < len(self._requests):
            self._room.clear()
            await self.prefill()
            await self._room.wait()

    def _make_one(self) -> bool:
        """False if there is no room, or nothing left to make."""
        while self._next < len(self._requests):
            request = self._requests[self._next]
            if request.index in self._overtaken:
                self._overtaken.discard(request.index)
                self._next += 1
                continue
            if self._ready_bytes >= self._ahead_bytes or len(self._ready) >= self._ahead_count:
                return False
            body = self._body_of(request)
            self._next += 1
            self._ready[request.index] = body
            self._ready_bytes += len(body)
            return True
        return False
