"""A request and its response as they went over the wire, through our transport or through httpx's own."""

from collections.abc import Callable

import httpx

from loadgen.drive.transport import Answer, LeanTransport, Timing

EXCERPT_BYTES = 65536
UNANSWERED = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


class Exchange:
    """What was seen on the wire: instants on the source's own clock, `pieces[i]` of the body at `instants[i]`.

    `error`: how the transport failed, if it did; what had come until then is kept. `ended_s` is the instant of the
    last byte, or of the failure.
    """

    __slots__ = ("ended_s", "error", "headers", "instants", "pieces", "started_s", "status", "timing")

    def __init__(self, started_s: float) -> None:
        self.started_s = started_s
        self.timing = Timing()
        self.pieces: list[bytes] = []
        self.instants: list[float] = []
        self.status: int | None = None
        self.headers = httpx.Headers()
        self.ended_s = started_s
        self.error: httpx.TransportError | None = None

    def body_text(self) -> str:
        """The beginning of the body, as text, for a message."""
        return b"".join(self.pieces)[:EXCERPT_BYTES].decode("utf-8", "replace") or "no body"


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
        exchange.status, exchange.headers = response.status_code, response.headers
        exchange.pieces, exchange.instants = answer.pieces, answer.instants
        try:
            await answer.whole()
            exchange.ended_s = answer.seen_s
        finally:
            await answer.aclose()

    async def close(self) -> None:
        """Closes the connections."""
        await self._transport.aclose()


class StockCourier:
    """Carries requests over httpx's own transport, which knows proxies; arrivals are stamped when it hands them out."""

    def __init__(self, http: httpx.AsyncClient, now: Callable[[], float]) -> None:
        self._http = http
        self._now = now

    async def carry(self, request: httpx.Request, exchange: Exchange) -> None:
        """Sends and records. Raises httpx.TransportError; `exchange` holds what came before it."""
        response = await self._open(request, exchange)
        exchange.status, exchange.headers = response.status_code, response.headers
        try:
            async for piece in response.aiter_raw():
                exchange.instants.append(self._now())
                exchange.pieces.append(piece)
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
