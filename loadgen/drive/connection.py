"""One connection of our own transport, and the answer that comes over it.

The bytes are stamped in the socket's callback before anything looks at them, and the body is kept as it came, to be
decoded elsewhere.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import httptools
import httpx

from loadgen.drive.stream import Recording


class Timing:
    """Instants of one request, filled in as it goes; give it in `request.extensions["timing"]`.

    `sent_s`: the request is handed to a connected socket. With `retries`, that of the last try.
    """

    __slots__ = ("first_byte_s", "retries", "sent_s")

    def __init__(self) -> None:
        self.sent_s: float | None = None
        self.first_byte_s: float | None = None
        self.retries = 0


class CutOff(httpx.RemoteProtocolError):
    """The connection closed before the response was whole."""


class Answer(httpx.AsyncByteStream):
    """One response: its head, then its body as a recording, filled in by the connection's callbacks.

    As an httpx stream it gives the body once all of it is there; `whole()` waits for that without copying.
    """

    __slots__ = (
        "connection",
        "end",
        "ended_s",
        "head",
        "headers",
        "on_body",
        "recording",
        "reusable",
        "status",
        "timing",
    )

    def __init__(self, timing: Timing) -> None:
        loop = asyncio.get_running_loop()
        self.timing = timing
        self.recording: Recording = []
        self.headers: list[tuple[bytes, bytes]] = []
        self.status = 0
        self.ended_s = 0.0
        self.reusable = False
        self.head: asyncio.Future[None] = loop.create_future()
        self.end: asyncio.Future[None] = loop.create_future()
        self.connection: Connection | None = None
        # What httptools calls for every piece of the body: nothing of ours runs between it and the list.
        self.on_body = self.recording.append

    def on_message_begin(self) -> None:
        """The first byte. A further message may only follow an interim (1xx) one."""
        if self.end.done() or self.connection is None:
            raise ValueError("bytes after the end of the response")
        if self.timing.first_byte_s is None:
            self.timing.first_byte_s = self.connection.seen_s

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collects a header. A trailer is none (RFC 9110, 6.5.1): it may come before anyone has read the head."""
        if not self.status:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is there, unless it is an interim (1xx) one."""
        status = 0 if self.connection is None else self.connection.parser.get_status_code()
        if status < 200:
            self.headers.clear()
            return
        self.status = status
        if not self.head.done():
            self.head.set_result(None)

    def on_message_complete(self) -> None:
        """The body is whole, unless the message was an interim (1xx) one."""
        if self.status and not self.end.done() and self.connection is not None:
            self.reusable = self.connection.parser.should_keep_alive()
            self.ended_s = self.connection.seen_s
            self.end.set_result(None)

    def connection_lost(self, error: Exception | None, seen_s: float) -> None:
        """The connection is gone: for a body without a length that is its end, for any other a failure."""
        framed = (b"content-length", b"transfer-encoding")
        if self.end.done():
            return
        if error is None and self.status and not any(name in framed for name, _ in self.headers):
            self.ended_s = seen_s
            self.end.set_result(None)
        elif self.timing.first_byte_s is None:
            self.fail(CutOff("the server closed the connection before any byte of the response"))
        else:
            how = "closed" if error is None else f"lost ({error.__class__.__name__})"
            self.fail(CutOff(f"connection {how} before the response was whole"))

    def fail(self, error: httpx.TransportError) -> None:
        """Ends the response with `error`, once."""
        for future in (self.head, self.end):
            if not future.done():
                future.set_exception(error)
                future.exception()  # looked at: whoever waits sees it, and nobody has to

    async def whole(self) -> None:
        """Waits until the body is there. Raises httpx.ReadTimeout or RemoteProtocolError (CutOff)."""
        await self.end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await self.whole()
        for item in self.recording:
            if isinstance(item, bytes):
                yield item

    async def aclose(self) -> None:
        """Gives the connection back if the response is whole, else closes it."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.release(self)


class Connection(asyncio.BufferedProtocol):
    """One socket; carries one request at a time.

    It reads into a `buffer` that all connections share (what is read is parsed before anyone reads again): asyncio's
    plain protocols get a fresh 256 KiB object per read, which can cost more than all the rest of a token.
    """

    __slots__ = ("_answer", "_buffer", "_free", "_now", "_recording", "_timer", "_transport", "parser", "seen_s")

    def __init__(self, now: Callable[[], float], free: "list[Connection]", buffer: memoryview) -> None:
        self._now = now
        self._free = free
        self._buffer = buffer
        self._answer: Answer | None = None
        self._recording: Recording = []
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.parser: httptools.HttpResponseParser = UNASKED
        self.seen_s = 0.0  # the last arrival

    @property
    def usable(self) -> bool:
        """False once either side has closed it."""
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, wire: bytes, answer: Answer, read_s: float) -> None:
        """Sends one request; `answer` is filled in from here on."""
        if self._transport is None or self._answer is not None:
            raise RuntimeError("a connection carries one request at a time")
        self._answer = answer
        self._recording = answer.recording
        self.parser = httptools.HttpResponseParser(answer)
        answer.connection = self
        self.seen_s = answer.timing.sent_s = self._now()
        if not self.usable:  # lost since it was connected; a closing transport would drop the request silently
            answer.connection_lost(None, self.seen_s)
            return
        self._transport.write(wire)
        self._timer = asyncio.get_running_loop().call_later(read_s, self._check, answer, read_s)

    def release(self, answer: Answer) -> None:
        """Ends the exchange: back to the free ones if the response came whole, else closed."""
        self._answer = None
        self._recording = []
        self.parser = UNASKED
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        whole = answer.end.done() and not answer.end.cancelled() and answer.end.exception() is None
        if whole and answer.reusable and self.usable:
            self._free.append(self)
        else:
            self.close()

    def close(self) -> None:
        """Closes at once; what has not been sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(f"not a stream: {transport!r}")
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the event loop."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the event loop: stamp first, then parse. This runs for every token of every stream."""
        self.seen_s = now = self._now()
        self._recording.append(now)
        try:
            self.parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._answer is not None:
                self._answer.reusable = False
                self._answer.fail(httpx.RemoteProtocolError(f"not HTTP/1.1: {error}"))
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        if self._answer is not None:
            self._answer.connection_lost(error, self.seen_s)
        elif self in self._free:
            self._free.remove(self)

    def _check(self, answer: Answer, read_s: float) -> None:
        """Fails the answer if nothing came for `read_s`; one timer per request instead of one per arrival."""
        silent_s = self._now() - self.seen_s
        if answer is not self._answer or answer.end.done():
            return
        if silent_s < read_s:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(read_s - silent_s, self._check, answer, read_s)
            return
        answer.fail(httpx.ReadTimeout(f"no byte for {read_s:g} s"))
        self.close()


class _Unasked(httptools.HttpResponseParser):
    """Stands where the parser is while nothing has been asked: bytes that come then are a farewell, or worse."""

    def feed_data(self, data: object) -> None:
        raise httptools.HttpParserError("bytes that nobody asked for")


UNASKED = _Unasked(None)
