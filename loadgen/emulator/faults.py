"""What an emulated server can be told to do wrong, and how each of these faults ends for whoever measures.

A switch is `NAME[=VALUE][@EVERY]`; several may be joined by commas. Every EVERY-th completion request that asks for a
stream, from the EVERY-th on, is answered with that fault (default: every one); faults of `metrics` count requests of
/metrics. Requests that ask for no stream, by which a client learns what prompts can be made of, are answered well.
`docs/faults.md` shows all outcomes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from loadgen.emulator import faults_of_answers, faults_of_servers, process, wire
from loadgen.emulator.asgi import whole_body
from loadgen.emulator.fault import Fault
from loadgen.errors import UserError

FAULTS: Mapping[str, Fault] = {row.name: row for row in (*faults_of_answers.ROWS, *faults_of_servers.ROWS)}
METRICS_PATH = "/metrics"
STREAM_PATHS = ("/v1/completions", "/v1/chat/completions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One switch, read."""

    fault: Fault
    value: Any
    every: int = 1

    def acts_on(self, number: int) -> bool:
        """Whether request `number`, from 1, is one that it spoils."""
        return number % self.every == 0


class Faults:
    """The faults of one server; without any, the server is as it would be."""

    def __init__(self, planted: Sequence[Planted]) -> None:
        self.planted = tuple(planted)
        self._seen: dict[str, int] = {}

    def wrapped(self, app: ASGIApp) -> ASGIApp:
        """`app` with the faults of requests. It must send each event of a stream as one message."""
        if not self._those(of_metrics=True) and not self._those(of_metrics=False):
            return app

        async def faulty(scope: Scope, receive: Receive, send: Send) -> None:
            inner = app
            if scope["type"] == "http" and scope["path"] == METRICS_PATH:
                inner = self._spoilt(app, of_metrics=True)
            elif scope["type"] == "http" and scope["path"] in STREAM_PATHS:
                body, receive = await whole_body(receive)
                if _streams(body):
                    inner = self._spoilt(app, of_metrics=False)
            await inner(scope, receive, send)

        return faulty

    def protocol(self) -> type[HttpToolsProtocol]:
        """The protocol class that uvicorn is to be given as `http`: faults below HTTP need one of their own."""
        below = any(planted.fault.where == "wire" for planted in self.planted)
        return wire.protocol_class() if below else HttpToolsProtocol

    def at_start(self) -> None:
        """To be called when the server listens."""
        for planted in self.planted:
            if planted.fault.name == "hangs-at-shutdown":
                process.ignore_term()
            elif planted.fault.name == "leaks-children":
                print(f"leaked a child: {process.leak_child(planted.value)}", flush=True)  # noqa: T201 (the server's log)

    async def at_stop(self) -> None:
        """To be awaited when the server is told to stop."""
        if any(planted.fault.name == "hangs-at-shutdown" for planted in self.planted):
            await process.never()

    def _those(self, *, of_metrics: bool) -> list[Planted]:
        requests = [planted for planted in self.planted if planted.fault.plant is not None]
        return [planted for planted in requests if (planted.fault.where == "metrics") == of_metrics]

    def _spoilt(self, app: ASGIApp, *, of_metrics: bool) -> ASGIApp:
        """`app` with the faults of the request that has come now."""
        counter = "metrics" if of_metrics else "streams"
        number = self._seen[counter] = self._seen.get(counter, 0) + 1
        for planted in self._those(of_metrics=of_metrics):
            if planted.acts_on(number) and planted.fault.plant is not None:
                app = planted.fault.plant(app, planted.value)
        return app


def parse(texts: Sequence[str]) -> Faults:
    """The faults of these switches. Raises UserError, one line per complaint."""
    complaints: list[str] = []
    switches = [switch.strip() for text in texts for switch in text.split(",")]
    planted = [_planted(switch, complaints) for switch in switches]
    if complaints:
        raise UserError(*complaints)
    return Faults([one for one in planted if one is not None])


def _planted(text: str, complaints: list[str]) -> Planted | None:
    rest, _, every = text.partition("@")
    name, equals, value = rest.partition("=")
    fault = FAULTS.get(name)
    if fault is None:
        complaints.append(f"fault {text}: {_unknown(name, FAULTS)}")
        return None
    if fault.plant is None and "@" in text:
        complaints.append(f"fault {text}: {name} has nothing to do with requests; leave out @{every}")
        return None
    if "@" in text and not (every.isdecimal() and int(every) > 0):
        complaints.append(f"fault {text}: @{every}: should be a whole number from 1: every n-th request is spoilt")
        return None
    if fault.value is None:
        if equals:
            complaints.append(f"fault {text}: {name} takes no value")
            return None
        return Planted(fault=fault, value=None, every=int(every or 1))
    try:
        read = fault.value.read(value if equals else fault.value.default)
    except ValueError:
        complaints.append(f"fault {text}: {value}: should be {fault.value.should}")
        return None
    return Planted(fault=fault, value=read, every=int(every or 1))


def _unknown(name: str, known: Mapping[str, Fault]) -> str:
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    return f"no such fault; did you mean {' or '.join(near)}?" if near else f"no such fault; known: {', '.join(known)}"


def _streams(body: bytes) -> bool:
    try:
        asked = json.loads(body)
    except ValueError:
        return False
    return isinstance(asked, dict) and asked.get("stream") is True
