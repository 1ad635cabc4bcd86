"""The emulated server's HTTP front: OpenAI's endpoints as vLLM answers them, an ASGI application."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from loadgen.emulator.arm import Emulated
from loadgen.emulator.asked import Asked, DetokenizeBody, Reader, Refusal, TokenizeBody, parsed
from loadgen.emulator.engine import Engine, Ticket
from loadgen.emulator.metrics import Exposition
from loadgen.emulator.recorder import ID_KEY
from loadgen.emulator.text import Tokenizer, chained
from loadgen.emulator.told import DONE, Teller, new_id
from loadgen.engines.emulator import ENGINE

JSON = "application/json"
METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Front:
    """The endpoints of one emulated engine. `engine` runs elsewhere; see `serve`."""

    def __init__(self, arm: Emulated, engine: Engine) -> None:
        self.arm = arm
        self.engine = engine
        self.tokenizer = Tokenizer(arm.profile.model.vocabulary)
        self.reader = Reader(tokenizer=self.tokenizer, served_name=arm.served_name, max_model_len=arm.max_model_len)
        self.exposition = Exposition(arm, engine.account)
        self._started = int(time.time())

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/v1/completions", self._completions, methods=["POST"]),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/tokenize", self._tokenize, methods=["POST"]),
                Route("/detokenize", self._detokenize, methods=["POST"]),
                Route("/version", self._version),
                Route("/metrics", self._metrics),
                Route("/health", self._well),
                Route("/ping", self._well, methods=["GET", "POST"]),
            ],
            exception_handlers={Refusal: _refused, ClientDisconnect: _gone, HTTPException: _failed},
        )

    async def _completions(self, request: Request) -> Response:
        content = await request.body()
        return self._accept(request, self.reader.completion(content, request.headers.get("content-type", "")))

    async def _chat(self, request: Request) -> Response:
        content = await request.body()
        return self._accept(request, self.reader.chat(content, request.headers.get("content-type", "")))

    def _accept(self, request: Request, asked: Asked) -> Response:
        told = Teller(
            asked=asked,
            tokenizer=self.tokenizer,
            model=self.arm.served_name,
            id=new_id(chat=asked.chat, given=request.headers.get("x-request-id")),
        )
        request.scope[ID_KEY] = told.id
        return (Stream if asked.stream else Whole)(self, told)

    def submit(self, asked: Asked) -> Ticket:
        """Hands a request to the engine."""
        limits = self.arm.limits
        contents: list[bytes] = []
        if limits.prefix_caching:
            made = [asked.answer.token(number) for number in range(asked.output_tokens)]
            contents = chained([*asked.prompt, *made], block_tokens=limits.block_tokens, salt=asked.salt)
        return self.engine.submit(
            prompt_tokens=len(asked.prompt),
            output_tokens=asked.output_tokens,
            contents=contents,
            finish_reason=asked.finish_reason,
        )

    def cached_tokens(self, ticket: Ticket) -> int | None:
        """What the usage says about the prefix cache."""
        return ticket.sequence.cached_tokens if self.arm.limits.prefix_caching else None

    async def _models(self, request: Request) -> Response:
        card = {
            "id": self.arm.served_name,
            "object": "model",
            "created": self._started,
            "owned_by": ENGINE.owner,
            "root": self.arm.profile.model.name,
            "parent": None,
            "max_model_len": self.arm.max_model_len,
            "permission": [],
        }
        return _json({"object": "list", "data": [card]})

    async def _tokenize(self, request: Request) -> Response:
        body = parsed(await request.body(), request.headers.get("content-type", ""), TokenizeBody)
        self.reader.check_model(body.model)
        if body.messages is not None:
            ids = self.reader.messages(body.messages)
        elif body.prompt is not None:
            ids = self.tokenizer.encode(body.prompt)
        else:
            raise Refusal("1 validation error:\n  body.prompt: Field required", kind="Bad Request", param="body.prompt")
        words = [self.tokenizer.word(token) for token in ids] if body.return_token_strs else None
        return _json({"count": len(ids), "max_model_len": self.arm.max_model_len, "tokens": ids, "token_strs": words})

    async def _detokenize(self, request: Request) -> Response:
        body = parsed(await request.body(), request.headers.get("content-type", ""), DetokenizeBody)
        self.reader.check_model(body.model)
        if (unknown := self.tokenizer.known(body.tokens)) is not None:
            raise Refusal(f"Token id {unknown} is out of vocabulary", param="tokens")
        return _json({"prompt": self.tokenizer.decode(body.tokens)})

    async def _version(self, request: Request) -> Response:
        return _json({"version": self.arm.profile.version})

    async def _metrics(self, request: Request) -> Response:
        return Response(self.exposition.text(), headers={"content-type": METRICS})

    async def _well(self, request: Request) -> Response:
        return Response(status_code=200)


class Whole(Response):
    """An answer in one piece, when its last token is out."""

    def __init__(self, front: Front, told: Teller) -> None:
        super().__init__(media_type=JSON)
        self._front, self._told = front, told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Waits for the tokens, then sends."""
        front, asked = self._front, self._told.asked
        async with _ticket(front, asked, receive) as ticket:
            if await ticket.more(asked.output_tokens - 1):
                body = self._told.whole(front.cached_tokens(ticket))
                await Response(body, media_type=JSON)(scope, receive, send)
            elif front.engine.stopped:
                body = Refusal("EngineCore encountered an issue.", status=500, kind="InternalServerError").body()
                await Response(body, status_code=500, media_type=JSON)(scope, receive, send)


class Stream(Response):
    """An answer as server-sent events, each in a message of its own."""

    def __init__(self, front: Front, told: Teller) -> None:
        super().__init__(media_type="text/event-stream")
        self._front, self._told = front, told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the headers at once and each event when its token is out. Breaks off where the engine stops."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with _ticket(self._front, self._told.asked, receive) as ticket:
            async for event in self._events(ticket):
                await send({"type": "http.response.body", "body": event, "more_body": True})
            if ticket.handed == self._told.asked.output_tokens:
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self, ticket: Ticket) -> AsyncIterator[bytes]:
        told, asked = self._told, self._told.asked
        for number in range(asked.output_tokens):
            if not await ticket.more(number):
                return
            if number == 0 and (first := told.first()) is not None:
                yield first
            yield told.token(number)
        if asked.usage_last:
            yield told.usage(self._front.cached_tokens(ticket))
        yield DONE


@asynccontextmanager
async def _ticket(front: Front, asked: Asked, receive: Receive) -> AsyncIterator[Ticket]:
    """The request inside the engine; taken out again when its client, or its writer, has gone."""
    ticket = front.submit(asked)
    watch = asyncio.create_task(_watch(front.engine, ticket, receive))
    try:
        yield ticket
    finally:
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        front.engine.abort(ticket)


async def _watch(engine: Engine, ticket: Ticket, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    engine.abort(ticket)


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content), media_type=JSON)


async def _gone(_request: Request, _error: Exception) -> Response:
    """The client left before its request was whole: nobody hears this answer."""
    return Response(status_code=400)


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal):
        raise error
    return Response(error.body(), status_code=error.status, media_type=JSON)


async def _failed(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    refusal = Refusal(error.detail, status=error.status_code, kind=error.detail)
    return Response(refusal.body(), status_code=error.status_code, headers=error.headers, media_type=JSON)
