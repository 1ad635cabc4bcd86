"""One request over the wire, from its body to its `Sample`: whatever happens, a sample comes out."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Literal, Self

import httpx

from loadgen import __version__
from loadgen.clock import Clock
from loadgen.drive import failures
from loadgen.drive.exchange import Exchange, LeanCourier, StockCourier
from loadgen.drive.failures import Expects
from loadgen.drive.transport import LeanTransport, Timeouts
from loadgen.errors import UserError
from loadgen.records import Request, Sample

Endpoint = Literal["completions", "chat"]
PATHS: Mapping[Endpoint, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
# What has come is decoded this often, away from the sockets' callbacks, and at most so many items (two make an event)
# between two turns of the event loop: nothing holds up the stamps for more than about 0.1 ms, and little memory is in
# use (fresh memory is what recording whole streams would cost most).
DECODE_EVERY_S = 0.25
DECODE_SLICE = 128


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
            self._courier = StockCourier(_stock(timeouts, tls), clock.source, timeouts)
        self._exchanges: dict[asyncio.Task[object], Exchange] = {}
        self._aborted = False
        self._decoding: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._decoding = asyncio.create_task(self._decode())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._decoding is not None:
            self._decoding.cancel()
            await asyncio.wait((self._decoding,))
            if not self._decoding.cancelled():
                self._decoding.result()
        await self._courier.close()

    @property
    def in_flight(self) -> int:
        """Requests that are on the wire."""
        return len(self._exchanges)

    def events_in_flight(self) -> int:
        """Events with content that requests in flight have received and that are decoded by now."""
        return sum(len(exchange.reading.events_s) for exchange in self._exchanges.values())

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
        while exchange.read(DECODE_SLICE) == DECODE_SLICE:
            await _give_way()
        exchange.read_rest()
        reading = exchange.reading
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
            failure=failures.judge(exchange, request.output_tokens, self._expects, self._secrets),
            text_digest=reading.text_digest(),
        )

    async def _decode(self) -> None:
        """Reads what has come for the requests in flight, a little at a time."""
        while True:
            await asyncio.sleep(DECODE_EVERY_S)
            budget = DECODE_SLICE
            for exchange in tuple(self._exchanges.values()):
                while taken := exchange.read(budget):
                    budget -= taken
                    if not budget:
                        await _give_way()
                        budget = DECODE_SLICE

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


async def _give_way() -> None:
    """One turn of the event loop for the others."""
    await asyncio.sleep(0)


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
