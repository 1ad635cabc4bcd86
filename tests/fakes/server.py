"""A server on a real loopback socket that does what a script says, and a proxy before it."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

# What to do, in order: bytes to send, seconds to wait, or "close" / "reset" / "hang".
Step = bytes | float | str


@dataclass
class Seen:
    """What the server saw."""

    url: str = ""
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def serving(
    answer: Callable[[int, bytes], Sequence[Step]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[Seen]:
    """Answers request number n (from 0) with the steps `answer(n, request)`."""
    seen = Seen()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        try:
            while True:
                request = await read_request(reader)
                seen.requests.append(request)
                for step in answer(len(seen.requests) - 1, request):
                    await take(step, writer)
                    if step in ("close", "reset"):
                        return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with _listening(serve, tls) as port:
        seen.url = f"{'https' if tls else 'http'}://localhost:{port}"
        yield seen


async def take(step: Step, writer: asyncio.StreamWriter) -> None:
    if isinstance(step, bytes):
        writer.write(step)
        await writer.drain()
    elif isinstance(step, float):
        await asyncio.sleep(step)
    elif step == "hang":
        await asyncio.Event().wait()
    elif step == "reset":
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return head + await reader.readexactly(int(length or 0))


@asynccontextmanager
async def proxying() -> AsyncIterator[Seen]:
    """A proxy for `http://` URLs given whole and for CONNECT; `seen.requests` holds the heads that it was sent."""
    seen = Seen()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        try:
            request = await read_request(reader)
            seen.requests.append(request)
            method, target, _ = request.split(b" ", 2)
            where = target.decode().removeprefix("http://").partition("/")[0]
            host, _, port = where.partition(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            if method == b"CONNECT":
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            else:
                far_writer.write(request.replace(target, b"/" + target.split(b"/", 3)[3], 1))
            there = asyncio.create_task(_copy(reader, far_writer))
            await _copy(far_reader, writer)
            there.cancel()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with _listening(serve, None) as port:
        seen.url = f"http://127.0.0.1:{port}"
        yield seen


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def _listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], object], tls: ssl.SSLContext | None
) -> AsyncIterator[int]:
    tasks: set[asyncio.Task[object]] = set()

    async def kept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)  # type: ignore[misc]
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(kept, "localhost", 0, ssl=tls, family=socket.AF_INET)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tuple(tasks))
