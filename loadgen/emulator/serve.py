"""An emulated server as a process: options in, listening until told to stop."""

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from loadgen.emulator import faults as planted_faults, lines
from loadgen.emulator.account import Account
from loadgen.emulator.arm import Emulated, emulated
from loadgen.emulator.engine import Engine
from loadgen.emulator.faults import Faults
from loadgen.emulator.front import Front
from loadgen.emulator.metrics import numbers
from loadgen.emulator.options import Options, read
from loadgen.emulator.profile import load
from loadgen.emulator.recorder import Recorder
from loadgen.errors import UserError

HOUR_S = 3600


def main(arguments: Sequence[str]) -> int:
    """Serves until told to stop; gives the exit code: 0, or 2 with a line per complaint."""
    try:
        options = read(arguments)
        serve(options)
    except UserError as error:
        for complaint in error.complaints:
            sys.stderr.write(f"loadgen emulate: {complaint}\n")
        return error.exit_code
    return 0


def serve(options: Options) -> None:
    """Listens, and serves until TERM or Ctrl-C. Raises UserError for what the user can mend."""
    arm, faults = planted(options), planted_faults.parse(options.faults)
    with _listening(options.host, options.port) as listener, _recording(options.record) as recorded:
        log = Log(arm.profile.version)
        engine = engine_of(arm, options, log)
        config = uvicorn.Config(
            recorded(faults.wrapped(Front(arm, engine).app())),
            http=faults.protocol(),
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=1,
            backlog=2048,
        )
        host, port = listener.getsockname()[:2]
        log.say(lines.banner(arm))
        for line in lines.start_lines(arm, host=host, port=port):
            log.say(line)
        Server(config, engine, log, faults).run(sockets=[listener])


def planted(options: Options) -> Emulated:
    """The engine that the options describe. Raises UserError."""
    profile = load(options.profile)
    if options.log_version is not None:
        profile = profile.model_copy(update={"version": options.log_version})
    if len(numbers(profile.version)) < 2 or numbers(profile.version) < (0, 8):
        raise UserError(f"version {profile.version}: should be a vLLM release from 0.8 on, such as 0.32.0")
    return emulated(profile, options.flags)


def engine_of(arm: Emulated, options: Options, log: "Log") -> Engine:
    """The engine, not yet running."""
    now_s = time.monotonic()
    return Engine(
        arm,
        Account(max_model_len=arm.max_model_len),
        seed=secrets.randbits(32) if options.seed is None else options.seed,
        machine_seed=(options.machine_seed,),
        origin_s=now_s - now_s % HOUR_S if options.origin_s is None else min(now_s, options.origin_s),
        late=lambda message: log.say(lines.Line(lines.CORE, "WARNING", "engine.py:1", message)),
    )


class Server(uvicorn.Server):
    """uvicorn's server beside a running engine; told to stop, it breaks off what is under way at once."""

    def __init__(self, config: uvicorn.Config, engine: Engine, log: "Log", faults: Faults) -> None:
        super().__init__(config)
        self._faults = faults
        self._engine = engine
        self._log = log
        self._running: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens, then says so."""
        self._running = asyncio.create_task(self._engine.run())
        self._running.add_done_callback(self._engine_ended)
        await super().startup(sockets)
        self._log.plain(f"INFO:     Started server process [{os.getpid()}]")
        self._log.plain("INFO:     Application startup complete.")
        self._faults.at_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Breaks off the answers under way, then closes. Raises what ended the engine, if anything did."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it would call each broken answer an error
        self._log.plain("INFO:     Shutting down")
        await self._faults.at_stop()
        self._engine.stop()
        await super().shutdown(sockets)
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))
            if not self._running.cancelled():
                self._running.result()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """TERM and Ctrl-C end the server well: uvicorn's own way would end the process by the signal afterwards."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _engine_ended(self, task: "asyncio.Task[None]") -> None:
        self.should_exit = True  # a server without its engine is of no use


class Log:
    """Standard output, in vLLM's form."""

    def __init__(self, version: str) -> None:
        self._version = version

    def say(self, line: lines.Line) -> None:
        """One message with vLLM's header."""
        self.plain(lines.written(line, at=datetime.now(), pid=os.getpid(), version=self._version))

    def plain(self, text: str) -> None:
        """One line as it is."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except (OSError, OverflowError) as error:
            raise UserError(f"--host {host} --port {port}: cannot listen there: {error}") from error
        yield listener


RECORD_BEGINS = b'{"request":'


@contextmanager
def _recording(path: str | None) -> Iterator[Callable[[ASGIApp], ASGIApp]]:
    if path is None:
        yield lambda app: app
        return
    try:
        with Path(path).open("ab+") as there:  # a folder, a place that cannot be written, are told here
            if there.seekable():
                there.seek(0)
                if there.read(len(RECORD_BEGINS)) not in (RECORD_BEGINS, b""):
                    raise UserError(f"--record {path}: exists and is no record; should be another file")
    except OSError as error:
        raise UserError(f"--record {path}: cannot write: {error.strerror}") from error
    with Path(path).open("w", encoding="utf-8") as file:
        yield lambda app: Recorder(app, file)
