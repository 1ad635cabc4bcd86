"""What planted faults are made of: each is an application around an application (https://asgi.readthedocs.io)."""

from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A fault: an application and the switch's value -> the application with that fault, for one request.
Plant = Callable[[ASGIApp, Any], ASGIApp]


def with_send(app: ASGIApp, made: Callable[[Scope, Send], Send]) -> ASGIApp:
    """`app`, whose messages go through `made(scope, send)`."""

    async def planted(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, made(scope, send))

    return planted


async def until_gone(receive: Receive) -> None:
    """Waits until the client has hung up."""
    while (await receive())["type"] != "http.disconnect":
        continue


async def whole_body(receive: Receive) -> tuple[bytes, Receive]:
    """A request's body, and a `receive` that gives it once more before it goes on."""
    pieces: list[bytes] = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    body = b"".join(pieces)
    again: list[Message] = [{"type": "http.request", "body": body, "more_body": more}]

    async def replayed() -> Message:
        return again.pop() if again else await receive()

    return body, replayed
