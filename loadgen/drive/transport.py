"""HTTP/1.1 on bare sockets: our own httpx transport, made to stamp arrivals and to cost little.

Why not the stock one: it costs several times the CPU per streamed token and searches a shared pool for every request.
Here each request in flight has a connection of its own and free ones lie in a stack.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from loadgen.drive.connection import Answer, Connection, CutOff, Timing

READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds: `connect_s` for a connection with its TLS handshake, `read_s` between two arrivals of bytes."""

    connect_s: float = 10.0
    read_s: float = 300.0


class LeanTransport(httpx.AsyncBaseTransport):
    """An httpx transport: HTTP/1.1 over TCP or TLS, keep-alive, no proxies, no HTTP/2, no decompression.

    `now` stamps; `tls` is used for https. A request on a reused connection that the server had closed meanwhile is
    sent once more, on a fresh one, if no byte of a response had come; `Timing.retries` counts it.
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts | None = None,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._tls = tls
        self._now = now
        self._free: dict[tuple[str, str, int], list[Connection]] = {}
        self._buffer = memoryview(bytearray(READ_BYTES))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends `request` and gives the response as soon as its head is there; its stream is an `Answer`.

        Raises httpx.ConnectError, ConnectTimeout, ReadTimeout, RemoteProtocolError (CutOff if the server hung up).
        """
        timing = request.extensions.get("timing") or Timing()
        wire = _wire(request, await request.aread())
        url = request.url
        key = (url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80))
        free = self._free.setdefault(key, [])
        connection = _pop_usable(free)
        reused = connection is not None
        answer = Answer(timing)
        while True:
            if connection is None:
                connection = await self._connect(key, free)
            connection.ask(wire, answer, self._timeouts.read_s)
            try:
                await answer.head
            except CutOff:
                await answer.aclose()
                if not reused or timing.first_byte_s is not None:
                    raise
            except BaseException:
                await answer.aclose()
                raise
            else:
                return httpx.Response(answer.status, headers=answer.headers, stream=answer)
            timing.retries += 1
            answer, connection, reused = Answer(timing), None, False

    async def aclose(self) -> None:
        """Closes the free connections."""
        for free in self._free.values():
            while free:
                free.pop().close()

    async def _connect(self, key: tuple[str, str, int], free: list[Connection]) -> Connection:
        scheme, host, port = key
        tls: ssl.SSLContext | None = None
        if scheme == "https":
            self._tls = tls = self._tls or ssl.create_default_context()
        try:
            async with asyncio.timeout(self._timeouts.connect_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._now, free, self._buffer), host, port, ssl=tls
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout(f"no connection to {host}:{port} in {self._timeouts.connect_s:g} s") from error
        except OSError as error:
            raise httpx.ConnectError(f"cannot connect to {host}:{port}: {error.strerror or error}") from error
        return connection


def _pop_usable(free: list[Connection]) -> Connection | None:
    """The connection that was freed last: it has had the least time to be closed by the server."""
    while free:
        connection = free.pop()
        if connection.usable:
            return connection
    return None


def _wire(request: httpx.Request, body: bytes) -> bytes:
    """The request as it goes over the wire."""
    lines = [request.method.encode() + b" " + request.url.raw_path + b" HTTP/1.1"]
    lines += [name + b": " + value for name, value in request.headers.raw]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
