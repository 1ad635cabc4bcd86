"""Planted faults of whole answers: a status, a head, a stream that stops, and what becomes of /metrics."""

import asyncio
import zlib

from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loadgen.emulator.asgi import until_gone, with_send

RETRY_AFTER_S = 1
BUSY = (429, 503)
HTML = "<html><body>It works!</body></html>"
GZIP_WINDOW = 16 + zlib.MAX_WBITS


def status(app: ASGIApp, code: int) -> ASGIApp:
    """An error of that status in vLLM's words (its entrypoints/serve/engine/protocol.py, 0.32)."""
    error = {"message": f"planted status {code}", "type": "PlantedError", "param": None, "code": code}
    headers = {"retry-after": str(RETRY_AFTER_S)} if code in BUSY else None
    return JSONResponse({"error": error}, status_code=code, headers=headers)


def no_answer(app: ASGIApp, value: None) -> ASGIApp:
    """Not one byte, and the connection stays open."""

    async def planted(scope: Scope, receive: Receive, send: Send) -> None:
        await until_gone(receive)

    return planted


def stall(app: ASGIApp, events: int) -> ASGIApp:
    """Nothing more after so many events, and the connection stays open."""

    async def planted(scope: Scope, receive: Receive, send: Send) -> None:
        seen = 0

        async def passed(message: Message) -> None:
            nonlocal seen
            if message["type"] == "http.response.body":
                seen += 1
                if seen > events:
                    return
            await send(message)

        await app(scope, receive, passed)
        await until_gone(receive)

    return planted


def content_type(app: ASGIApp, name: str) -> ASGIApp:
    """The same answer under another content type."""
    return _with_head(app, b"content-type", name.encode())


def gzip(app: ASGIApp, value: None) -> ASGIApp:
    """A compressed body, whatever the client accepts."""

    def made(scope: Scope, send: Send) -> Send:
        packer = zlib.compressobj(wbits=GZIP_WINDOW)

        async def packed(message: Message) -> None:
            if message["type"] == "http.response.body":
                more = message.get("more_body", False)
                body = packer.compress(message.get("body", b""))
                body += packer.flush(zlib.Z_SYNC_FLUSH if more else zlib.Z_FINISH)
                message = {**message, "body": body}
            await send(message)

        return packed

    return _with_head(with_send(app, made), b"content-encoding", b"gzip")


def metrics_missing(app: ASGIApp, value: None) -> ASGIApp:
    """No such page."""
    return PlainTextResponse("Not Found", status_code=404)


def metrics_html(app: ASGIApp, value: None) -> ASGIApp:
    """A page for people."""
    return HTMLResponse(HTML)


def metrics_slow(app: ASGIApp, seconds: float) -> ASGIApp:
    """The right answer, late."""

    async def planted(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(seconds)
        await app(scope, receive, send)

    return planted


def metrics_renamed(app: ASGIApp, value: None) -> ASGIApp:
    """Prometheus text whose every name is another engine's."""

    def made(scope: Scope, send: Send) -> Send:
        async def renamed(message: Message) -> None:
            if message["type"] == "http.response.body":  # of equal length: the answer has told its length already
                message = {**message, "body": message.get("body", b"").replace(b"vllm:", b"mine:")}
            await send(message)

        return renamed

    return with_send(app, made)


def _with_head(app: ASGIApp, name: bytes, value: bytes) -> ASGIApp:
    """The answer with one header changed, and without a length that may be no longer true."""

    def made(scope: Scope, send: Send) -> Send:
        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message["headers"] if pair[0].lower() not in (name, b"content-length")]
                message = {**message, "headers": [*kept, (name, value)]}
            await send(message)

        return headed

    return with_send(app, made)
