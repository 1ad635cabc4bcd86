"""A request and its response as they went over the wire, through our transport or through httpx's own."""

from collections.abc import Callable

import httpx

from loadgen.drive.connection import Answer, CutOff, Timing
from loadgen.drive.stream import Reading, Recording
from loadgen.drive.transport import LeanTransport, Timeouts

EVENT_STREAM = "text/event-stream"
EXCERPT_BYTES = 65536
UNANSWERED = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


class Exchange:
    """What was seen on the wire; instants on the source's own clock.

    `recording`: what came of the body; it is taken away as it is read, of an event stream into `reading`, of any other
    body its beginning into `excerpt`. `error`: how the transport failed, if it did; what had come until then is kept.
    `ended_s`: the last byte, or the failure.
    """

    __slots__ = (
        "ended_s",
        "error",
        "excerpt",
        "headers",
        "is_stream",
        "reading",
        "recording",
        "started_s",
        "status",
        "timing",
    )

    def __init__(self, started_s: float) -> None:
        self.started_s = started_s
        self.timing = Timing()
        self.recording: Recording = []
        self.status: int | None = None
        self.headers = httpx.Headers()
        self.is_stream = False
        self.reading = Reading()
        self.excerpt = b""
        self.ended_s = started_s
        self.error: httpx.TransportError | None = None

    def answered(self, response: httpx.Response) -> None:
        """Takes over the head of the response."""
        self.status, self.headers = response.status_code, response.headers
        content_type = self.headers.get("content-type", "")
        self.is_stream = self.status == 200 and content_type.lower().startswith(EVENT_STREAM)

    def read(self, most: int) -> int:
        """Decodes at most that much of the recording, and gives how much it was: about twice the events."""
        part = self.recording[:most]
        del self.recording[:most]
        if self.is_stream:
            self.reading.take(part)
        elif len(self.excerpt) < EXCERPT_BYTES:
            body = b"".join(item for item in part if isinstance(item, bytes))
            self.excerpt = (self.excerpt + body)[:EXCERPT_BYTES]
        return len(part)

    def read_rest(self) -> None:
        """Decodes what a whole body has left behind, when all of its recording has been read."""
        if self.is_stream and self.error is None:
            self.reading.finish()

    def body_text(self) -> str:
        """The beginning of the body that was read, as text, for a message."""
        return self.excerpt.decode("utf-8", "replace") or "no body"


class LeanCourier:
    """Carries requests over `LeanTransport`: the recording is made by the socket's callback."""

    def __init__(self, transport: LeanTransport) -> None:
        self._transport = transport

    async def carry(self, request: httpx.Request, exchange: Exchange) -> None:
        """Sends and records. Raises httpx.TransportError; `exchange` holds what came before it."""
        request.extensions["timing"] = exchange.timing
        response = await self._transport.handle_async_request(request)
        answer = response.stream
        if not isinstance(answer, Answer):
            raise TypeError(f"not from LeanTransport: {answer!r}")
        exchange.answered(response)
        exchange.recording = answer.recording
        try:
            await answer.whole()
            exchange.ended_s = answer.ended_s
        finally:
            await answer.aclose()

    async def close(self) -> None:
        """Closes the connections."""
        await self._transport.aclose()


class StockCourier:
    """Carries requests over httpx's own transport, which knows proxies; arrivals are stamped when it hands them out."""

    def __init__(self, http: httpx.AsyncClient, now: Callable[[], float], timeouts: Timeouts) -> None:
        self._http = http
        self._now = now
        self._timeouts = timeouts

    async def carry(self, request: httpx.Request, exchange: Exchange) -> None:
        """Sends and records. Raises httpx.TransportError, in `LeanTransport`'s words; `exchange` holds what came."""
        try:
            await self._carry(request, exchange)
        except httpx.InvalidURL as error:  # httpx looks at where a redirect leads, and this is no TransportError
            raise httpx.RemoteProtocolError(f"redirects to what is no URL: {error}") from error
        except httpx.TransportError as error:
            raise _told(error, request.url, self._timeouts) from error

    async def _carry(self, request: httpx.Request, exchange: Exchange) -> None:
        response = await self._open(request, exchange)
        exchange.answered(response)
        try:
            async for piece in response.aiter_raw():
                exchange.recording.append(self._now())
                exchange.recording.append(piece)
            exchange.ended_s = self._now()
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def _open(self, request: httpx.Request, exchange: Exchange) -> httpx.Response:
        timing = exchange.timing
        trace = _Trace(timing, self._now)
        request.extensions["trace"] = trace
        try:
            return await self._http.send(request, stream=True)
        except UNANSWERED:
            if trace.connected or timing.first_byte_s is not None:
                raise
        timing.retries += 1
        return await self._http.send(request, stream=True)


class _Trace:
    """Takes the instants that httpcore tells of (https://www.encode.io/httpcore/extensions/#trace)."""

    def __init__(self, timing: Timing, now: Callable[[], float]) -> None:
        self._timing = timing
        self._now = now
        self.connected = False

    async def __call__(self, event: str, details: object) -> None:
        if event == "http11.send_request_headers.started":
            self._timing.sent_s = self._now()
        elif event == "http11.receive_response_headers.complete":
            self._timing.first_byte_s = self._now()
        elif event == "connection.connect_tcp.started":
            self.connected = True


def _told(error: httpx.TransportError, url: httpx.URL, timeouts: Timeouts) -> httpx.TransportError:
    """The same error with words to it: httpx leaves them out, or tells a hang-up from garbage by them alone."""
    words = str(error)
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        return type(error)(f"no byte for {timeouts.read_s:g} s")
    if isinstance(error, httpx.ConnectTimeout):
        return httpx.ConnectTimeout(f"no connection to {url.netloc.decode()} in {timeouts.connect_s:g} s")
    if type(error) is httpx.ConnectError:
        return httpx.ConnectError(f"cannot connect to {url.netloc.decode()}: {words}")
    if isinstance(error, httpx.ReadError | httpx.WriteError):
        return CutOff(f"connection lost ({words or type(error).__name__}) before the response was whole")
    if isinstance(error, httpx.RemoteProtocolError):
        hung_up = "peer closed" in words or "disconnected" in words
        return (
            CutOff("connection closed before the response was whole")
            if hung_up
            else httpx.RemoteProtocolError(f"not HTTP/1.1: {words}")
        )
    return error
