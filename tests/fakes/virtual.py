"""An event loop whose clock jumps from timer to timer, and a server in memory that answers at set instants.

Nothing waits for real: a test of an hour of traffic takes milliseconds, and every instant in it is exact.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.SelectSelector):
    """Never waits: where a real one would sleep until the next timer, the loop's clock jumps there."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        self.loop.jump()
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0 and stands still while anything is ready to run."""

    def __init__(self) -> None:
        self._virtual_s = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)
        self.server: Server | None = None

    def time(self) -> float:
        return self._virtual_s

    def jump(self) -> None:
        if not self._scheduled:
            raise RuntimeError("everything waits and nothing will ever happen")
        self._virtual_s = max(self._virtual_s, self._scheduled[0].when())

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        if self.server is None:
            raise ConnectionRefusedError(111, "Connection refused")
        return await self.server.accept(self, protocol_factory)


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Runs `main(loop)` to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        return runner.run(main(loop))


@dataclass
class Script:
    """An answer: (seconds after the request, bytes) in order; then what happens to the connection."""

    sends: Sequence[tuple[float, bytes]]
    then: str = "keep"  # keep | close | reset
    then_after_s: float = 0.0


@dataclass
class Server:
    """Answers request number n (from 0, over all connections) with `answer(n, request bytes)`."""

    answer: Callable[[int, bytes], Script]
    connect_s: float = 0.0
    requests: list[tuple[float, bytes]] = field(default_factory=list)
    connections: int = 0
    dies_on_accept: bool = False

    async def accept(self, loop: VirtualLoop, protocol_factory: Any) -> Any:
        if self.connect_s:
            await asyncio.sleep(self.connect_s)
        protocol = protocol_factory()
        self.connections += 1
        transport = MemoryTransport(loop, protocol, self)
        protocol.connection_made(transport)
        if self.dies_on_accept:
            transport.lose("close")
        return transport, protocol


class MemoryTransport(asyncio.Transport):
    """The client's end of a connection in memory."""

    def __init__(self, loop: VirtualLoop, protocol: Any, server: Server) -> None:
        super().__init__()
        self.loop = loop
        self.protocol = protocol
        self.server = server
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: Any) -> None:
        if self.closed:
            return
        number = len(self.server.requests)
        self.server.requests.append((self.loop.time(), bytes(data)))
        script = self.server.answer(number, bytes(data))
        at = self.loop.time()
        for after_s, piece in script.sends:
            self.loop.call_at(at + after_s, self.deliver, piece)
            last = at + after_s
        if script.then != "keep":
            self.loop.call_at((last if script.sends else at) + script.then_after_s, self.lose, script.then)

    def deliver(self, piece: bytes) -> None:
        while piece and not self.closed:
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(piece))
            buffer[:count] = piece[:count]
            self.protocol.buffer_updated(count)
            piece = piece[count:]

    def lose(self, how: str) -> None:
        if not self.closed:
            self.closed = True
            self.protocol.connection_lost(ConnectionResetError(104, "reset") if how == "reset" else None)

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self.loop.call_soon(self.protocol.connection_lost, None)

    close = abort
