"""A small engine as an ASGI application: what planted faults are planted in, and a server for it on a real socket."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from loadgen.emulator.faults import Faults

METRICS = """vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:num_requests_running{engine="0"} 1.0
vllm:num_requests_waiting{engine="0"} 0.0
vllm:generation_tokens_total{engine="0"} 7.0
"""
GAP_S = 0.002
TEXT = " thé"  # two bytes for one letter: a cut may go through it


class App:
    """Answers a stream with as many tokens as it asks for; `asked` counts the streams that got here."""

    def __init__(self, gap_s: float = GAP_S) -> None:
        self.gap_s = gap_s
        self.asked = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(scope["type"])
        path = scope["path"]
        if path == "/metrics":
            return await whole(send, METRICS.encode(), "text/plain; version=0.0.4")
        if path == "/v1/models":
            model = {"id": "m", "object": "model", "max_model_len": 4096}
            return await whole(send, json.dumps({"object": "list", "data": [model]}).encode())
        if path == "/version":
            return await whole(send, b'{"version": "0.32.0"}')
        if path not in ("/v1/completions", "/v1/chat/completions"):
            return await whole(send, b"")
        message = await receive()
        return await self.complete(json.loads(message["body"]), path.endswith("/chat/completions"), send)

    async def complete(self, asked: dict[str, Any], chat: bool, send: Send) -> None:
        tokens = int(asked.get("max_tokens", 4))
        prompt = asked.get("prompt", "")
        counted = len(prompt if isinstance(prompt, list) else prompt.split())
        usage = {"prompt_tokens": counted, "completion_tokens": tokens, "total_tokens": counted + tokens}
        if not asked.get("stream"):
            body = {"choices": [{"index": 0, "text": TEXT, "finish_reason": "length"}], "usage": usage}
            await whole(send, json.dumps(body).encode())
            return
        self.asked += 1
        await send(start("text/event-stream; charset=utf-8"))
        for number in range(tokens):
            await asyncio.sleep(self.gap_s)
            said = {"delta": {"content": TEXT}} if chat else {"text": TEXT}
            finish = "length" if number == tokens - 1 else None
            await send(event({"choices": [{"index": 0, **said, "finish_reason": finish}], "usage": None}))
        await send(event({"choices": [], "usage": usage}))
        await send(piece(b"data: [DONE]\n\n"))
        await send(piece(b"", more=False))


def start(kind: str, status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind.encode())]}


def piece(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


def event(body: dict[str, Any]) -> dict[str, Any]:
    return piece(b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n")


async def whole(send: Send, body: bytes, kind: str = "application/json") -> None:
    await send(start(kind))
    await send(piece(body, more=False))


@asynccontextmanager
async def serving(app: Any, faults: Faults) -> AsyncIterator[str]:
    """The app with its faults on loopback, as uvicorn serves it; gives its URL. Its tasks must end with the clients."""
    config = uvicorn.Config(faults.wrapped(app), http=faults.protocol(), log_config=None, lifespan="off")
    config.load()
    state, loop = ServerState(), asyncio.get_running_loop()
    protocol: Any = config.http_protocol_class
    server = await loop.create_server(
        lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0, backlog=1000
    )
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        async with asyncio.timeout(5):
            while state.tasks:
                await asyncio.sleep(0.001)


async def asked_in_memory(app: Any, body: dict[str, Any], path: str = "/v1/completions") -> list[dict[str, Any]]:
    """The messages with which `app` answers a POST of `body`; the client hangs up when the answer stands still."""
    messages: list[dict[str, Any]] = []
    inbox: Sequence[dict[str, Any]] = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    waiting = list(inbox)

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop(0)
        await asyncio.sleep(0.2)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        messages.append(message)

    await app({"type": "http", "path": path, "method": "POST", "headers": []}, receive, send)
    return messages
