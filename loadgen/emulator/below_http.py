"""Planted faults below HTTP: what networks, proxies and other programs do to a connection."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loadgen.emulator.asgi import until_gone, with_send
from loadgen.emulator.wire import Wire, wire_of

GARBAGE = b"\x16\x03\x01\x02\x00\x01\x00\r\n"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </>; rel=preload\r\n\r\n"


def refused(app: ASGIApp, value: None) -> ASGIApp:
    """No connection is to be had any more."""
    return _instead(lambda wire: wire.refuse(listening=False))


def hung_up(app: ASGIApp, value: None) -> ASGIApp:
    """Connections are accepted and closed at once."""
    return _instead(lambda wire: wire.refuse(listening=True))


def reset_before(app: ASGIApp, value: None) -> ASGIApp:
    """RST instead of an answer."""
    return _instead(Wire.reset)


def reset_within(app: ASGIApp, events: int) -> ASGIApp:
    """RST after so many events."""
    return _after_events(app, events, Wire.reset)


def cut_off(app: ASGIApp, events: int) -> ASGIApp:
    """The connection is closed, in good order, after so many events: the last chunk never comes."""
    return _after_events(app, events, Wire.close)


def garbled(app: ASGIApp, events: int) -> ASGIApp:
    """Bytes that are no chunk after so many events."""

    def garble(wire: Wire) -> None:
        wire.write(GARBAGE)
        wire.close()

    return _after_events(app, events, garble)


def not_http(app: ASGIApp, value: None) -> ASGIApp:
    """Bytes that are no HTTP instead of an answer."""

    def answer(wire: Wire) -> None:
        wire.write(GARBAGE)
        wire.close()

    return _instead(answer)


def slow_head(app: ASGIApp, seconds: float) -> ASGIApp:
    """Half of the head at once, the rest later."""

    async def slowed(wire: Wire, message: Message, send: Send) -> None:
        starts = message["type"] == "http.response.start"
        if starts:
            wire.hold()
        await send(message)
        if starts:
            wire.release(0.5)
            await asyncio.sleep(seconds)
            wire.release()

    return _around_send(app, slowed)


def in_pieces(app: ASGIApp, size_bytes: int) -> ASGIApp:
    """Every write to the socket carries so many bytes at most."""

    async def cut(wire: Wire, message: Message, send: Send) -> None:
        wire.piece_bytes = size_bytes
        await send(message)

    return _around_send(app, cut)


def in_bulk(app: ASGIApp, events: int) -> ASGIApp:
    """So many events go in one write to the socket."""
    waiting = 0

    async def heaped(wire: Wire, message: Message, send: Send) -> None:
        nonlocal waiting
        body = message["type"] == "http.response.body"
        if body:
            wire.hold()
            waiting += 1
        await send(message)
        if body and (waiting == events or not message.get("more_body", False)):
            wire.release()
            waiting = 0

    return _around_send(app, heaped)


def closed_after(app: ASGIApp, value: None) -> ASGIApp:
    """The connection is closed after the answer, which has not announced it."""
    return _after_end(app, Wire.close)


def chatty_after(app: ASGIApp, value: None) -> ASGIApp:
    """More bytes come when the answer is whole."""
    return _after_end(app, lambda wire: wire.write(GARBAGE))


def interim(app: ASGIApp, value: None) -> ASGIApp:
    """An interim answer (RFC 8297) comes first."""

    async def hinted(wire: Wire, message: Message, send: Send) -> None:
        if message["type"] == "http.response.start":
            wire.write(EARLY_HINTS)
        await send(message)

    return _around_send(app, hinted)


def _instead(act: Callable[[Wire], None]) -> ASGIApp:
    async def planted(scope: Scope, receive: Receive, send: Send) -> None:
        act(wire_of(scope))
        await until_gone(receive)

    return planted


def _around_send(app: ASGIApp, act: Callable[[Wire, Message, Send], Awaitable[None]]) -> ASGIApp:
    def made(scope: Scope, send: Send) -> Send:
        wire = wire_of(scope)

        async def acted(message: Message) -> None:
            await act(wire, message, send)

        return acted

    return with_send(app, made)


def _after_events(app: ASGIApp, events: int, act: Callable[[Wire], None]) -> ASGIApp:
    seen = 0

    async def counted(wire: Wire, message: Message, send: Send) -> None:
        nonlocal seen
        await send(message)
        seen += message["type"] == "http.response.body"
        if seen == events:
            act(wire)
            seen += 1  # once

    return _around_send(app, counted)


def _after_end(app: ASGIApp, act: Callable[[Wire], None]) -> ASGIApp:
    async def ended(wire: Wire, message: Message, send: Send) -> None:
        await send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            act(wire)

    return _around_send(app, ended)
