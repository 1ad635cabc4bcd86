"""The true instant of each piece of an answer: what a client's own stamps are checked against."""

import time
from collections.abc import Callable
from typing import TextIO

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ID_KEY = "loadgen.request_id"  # where the front leaves an answer's id in the scope


class Recorder:
    """The outermost part of the application: notes when each piece of an answer is handed to the transport.

    One JSON line per piece: `request` (number of arrival, from 0, over all POST requests under /v1), `id`, `event`
    (number of the piece, from 0; the headers do not count) and `at_s`, on CLOCK_MONOTONIC, read right before the hand-
    over. Lines are written out when an answer ends.
    """

    def __init__(self, app: ASGIApp, file: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._file = file
        self._clock = clock
        self._arrived = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything on, and notes."""
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        number, instants = self._arrived, list[float]()
        self._arrived += 1
        clock = self._clock

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.body" and message.get("body"):
                instants.append(clock())
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            self._write(number, scope.get(ID_KEY), instants)

    def _write(self, number: int, told: str | None, instants: list[float]) -> None:
        for event, at_s in enumerate(instants):
            line = msgspec.json.encode({"request": number, "id": told, "event": event, "at_s": at_s})
            self._file.write(line.decode() + "\n")
        self._file.flush()
