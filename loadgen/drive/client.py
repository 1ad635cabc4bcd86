"""One request over the wire, from its body to its `Sample`: whatever happens, a sample comes out."""

import asyncio
import ssl
from collections.abc import Mapping
from itertools import islice
from typing import Literal, Self

import httpx

from loadgen import __version__
from loadgen.clock import Clock
from loadgen.drive import failures, sse
from loadgen.drive.exchange import Exchange, LeanCourier, StockCourier
from loadgen.drive.failures import Expects
from loadgen.drive.stream import Reading
from loadgen.drive.transport import LeanTransport, Timeouts
from loadgen.errors import UserError
from loadgen.records import Request, Sample

Endpoint = Literal["completions", "chat"]
PATHS: Mapping[Endpoint, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
# Between slices of this many events the event loop gets its turn, so that decoding a long stream does not hold up the
# stamps of the others for more than about 0.3 ms.
DECODE_SLICE = 256


class Client:
    """Sends streaming requests to one endpoint of one server and records how the answers come.

    `base_url` with or without a trailing `/v1`. `headers` may hold secrets: their values never appear in a sample.
    `transport`: "lean" is our own (HTTP/1.1, direct); "httpx" is httpx's, which honours `HTTP_PROXY`, `HTTPS_PROXY`
    and `NO_PROXY`, costs several times the CPU and stamps a chunk when it hands it out. `expects`: what a good answer
    must have. Raises UserError for a URL or a header that cannot be sent.
    """

    def __init__(
        self,
        *,
        base_url: str,
        endpoint: Endpoint,
        clock: Clock,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        transport: Literal["lean", "httpx"] = "lean",
        tls: ssl.SSLContext | None = None,
        expects: Expects | None = None,
    ) -> None:
        self.url = httpx.URL(server_root(base_url) + PATHS[endpoint])
        self._clock = clock
        self._headers = request_headers(headers or {})
        self._secrets = failures.secrets_of(headers or {})
        self._expects = expects or Expects()
        timeouts = timeouts or Timeouts()
        self._courier: LeanCourier | StockCourier
        if transport == "lean":
            self._courier = LeanCourier(LeanTransport(timeouts=timeouts, tls=tls, now=clock.source))
        else:
            self._courier = StockCourier(_stock(timeouts, tls), clock.source)
        self._exchanges: dict[asyncio.Task[object], Exchange] = {}
        self._aborted = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._courier.close()

    @property
    def in_flight(self) -> int:
        """Requests that are on the wire."""
        return len(self._exchanges)

    def pieces_in_flight(self) -> int:
        """Pieces of body that requests in flight have received: about their tokens, for a live display."""
        return sum(len(exchange.pieces) for exchange in self._exchanges.values())

    def abort(self) -> None:
        """Ends all requests in flight at once: their samples say `stopped`."""
        self._aborted = True
        for task in self._exchanges:
            task.cancel()

    async def send(
        self, body: bytes, *, request: Request, stage: str, warmup: bool = False, due_s: float | None = None
    ) -> Sample:
        """Sends `body`, waits for the whole answer and says what happened; a failure is in the sample, never raised.

        `due_s` is on the run's clock. To cancel the task from outside cancels the request and raises CancelledError;
        `abort` does not.
        """
        exchange = Exchange(self._clock.source())
        await self._carry(body, exchange)
        reading = Reading()
        if exchange.status == 200:
            whole = exchange.error is None
            events = sse.events(zip(exchange.instants, exchange.pieces, strict=False), complete=whole)
            while True:
                if reading.take(islice(events, DECODE_SLICE)) < DECODE_SLICE:
                    break
                await asyncio.sleep(0)
        origin, timing = self._clock.origin, exchange.timing
        return Sample(
            index=request.index,
            stage=stage,
            warmup=warmup,
            due_s=due_s,
            sent_s=(exchange.started_s if timing.sent_s is None else timing.sent_s) - origin,
            first_byte_s=None if timing.first_byte_s is None else timing.first_byte_s - origin,
            events_s=tuple([at_s - origin for at_s in reading.events_s]),
            end_s=exchange.ended_s - origin,
            planned_prompt_tokens=request.prompt_tokens,
            planned_output_tokens=request.output_tokens,
            prompt_tokens=reading.prompt_tokens,
            output_tokens=reading.output_tokens,
            cached_tokens=reading.cached_tokens,
            finish_reason=reading.finish_reason,
            status=exchange.status,
            retries=timing.retries,
            retry_after_s=failures.retry_after_s(exchange.headers.get("retry-after")),
            failure=failures.judge(exchange, reading, request.output_tokens, self._expects, self._secrets),
            text_digest=reading.text_digest(),
        )

    async def _carry(self, body: bytes, exchange: Exchange) -> None:
        """One request and its whole response; how it failed is kept in `exchange.error`."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("send() runs in a task")
        request = httpx.Request("POST", self.url, headers=self._headers, content=body)
        self._exchanges[task] = exchange
        try:
            await self._courier.carry(request, exchange)
        except httpx.TransportError as error:
            exchange.error = error
        except asyncio.CancelledError:
            if not self._aborted or task.uncancel():
                raise
            exchange.error = failures.Stopped("stopped")
        finally:
            del self._exchanges[task]
            if exchange.error is not None:
                exchange.ended_s = self._clock.source()


def server_root(base_url: str) -> str:
    """The server's URL without `/v1`, which users write and leave out. Raises UserError if it is no http(s) URL."""
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise UserError(f"url: {base_url}: {error}; give http://HOST:PORT") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise UserError(f"url: {base_url}: not an http or https address; give http://HOST:PORT")
    return base_url.rstrip("/").removesuffix("/v1")


def request_headers(given: Mapping[str, str]) -> httpx.Headers:
    """The headers of every request, with those given. Raises UserError, which does not quote it, for a bad value."""
    for name, value in given.items():
        if not value.strip().isprintable() or not value.isascii():
            raise UserError(f"header {name}: its value has characters that a header cannot carry (a line break?)")
    return httpx.Headers(
        {
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": f"loadgen/{__version__}",
            **{name.lower(): value.strip() for name, value in given.items()},
        }
    )


def _stock(timeouts: Timeouts, tls: ssl.SSLContext | None) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        verify=True if tls is None else tls,
        timeout=httpx.Timeout(timeouts.read_s, connect=timeouts.connect_s, pool=None),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
    )
