"""One engine process: started, waited for, stopped whole."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import httpx

from loadgen.engines.engine import Engine
from loadgen.engines.table import ENGINES
from loadgen.errors import ServerError, UserError
from loadgen.records import ArmSpec
from loadgen.server import log, supervise
from loadgen.server.child import Child
from loadgen.server.environment import engine_environment, engine_python, is_cpu_build, is_own, own_environment
from loadgen.server.fetch import fetch

OnWait = Callable[[float, str], None]

POLL_S = 0.25
GRACE_S = 20.0
_TAIL_BYTES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An engine that is up. `pid` is the engine's own first process; `ready_after_s` from its start to readiness."""

    url: str
    log_path: Path
    pid: int
    argv: tuple[str, ...]
    ready_after_s: float
    name: str
    child: Child = field(repr=False)

    def ended(self) -> ServerError | None:
        """What to tell if the engine has ended by itself; None while it runs."""
        code = self.child.code()
        return None if code is None else _died(self.name, code, self.log_path)


def flag_arguments(flags: Mapping[str, str]) -> list[str]:
    """Flags as arguments, vLLM's way: true -> --flag, false -> --no-flag, a JSON list -> several values."""
    arguments: list[str] = []
    for key, value in flags.items():
        if value == "true":
            arguments.append(f"--{key}")
        elif value == "false":
            arguments.append(f"--no-{key}")
        else:
            arguments += [f"--{key}", *_values(value)]
    return arguments


def _values(value: str) -> list[str]:
    if value.startswith("["):
        try:
            return [item if isinstance(item, str) else json.dumps(item) for item in json.loads(value)]
        except ValueError:
            return [value]
    return [value]


def free_port(first: int = 8100, *, host: str = "127.0.0.1", avoid: Sequence[int] = ()) -> int:
    """The first port from `first` that nothing listens on. Raises ServerError if the next thousand are all taken."""
    for port in range(first, min(first + 1000, 65536)):
        if port not in avoid and _is_free(host, port):
            return port
    raise ServerError(f"no free port on {host} from {first} to {first + 999}")


def _is_free(host: str, port: int) -> bool:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def server_argv(arm: ArmSpec, *, engine: Engine, python: Path, host: str, port: int) -> list[str]:
    """The whole command line that serves `arm`. Raises UserError for an engine that loadgen cannot start."""
    if engine.module is None:
        raise UserError(f"arm {arm.name}: engine {engine.name} is nothing that loadgen can start; give name=URL")
    flags = {**arm.shared_flags, **arm.flags}
    for own in ("host", "port"):
        if own in flags:
            raise UserError(f"arm {arm.name}: {own}={flags[own]}: loadgen sets it; remove the line")
    return [str(python), "-m", engine.module, "--host", host, "--port", str(port), *flag_arguments(flags)]


@asynccontextmanager
async def launched(
    arm: ArmSpec,
    *,
    port: int,
    log_path: Path,
    on_wait: OnWait,
    timeout_s: float = 600.0,
    grace_s: float = GRACE_S,
) -> AsyncIterator[Server]:
    """Starts the engine of `arm` on loopback, waits until it is ready, and stops all of it on the way out.

    Its whole output goes to `log_path`. `on_wait(elapsed_s, last line of the log)` is called about four times a second
    while waiting. Stopping is TERM to the engine's process group, then KILL to whatever is left after `grace_s`; a
    supervisor process (`supervise`) does both, and does them too if loadgen is killed. Raises ServerError (port in use,
    engine not installed, died early with the log's telling lines, not ready in time) and UserError (flags that are
    loadgen's own).
    """
    engine, host = ENGINES[arm.engine], "127.0.0.1"
    if not _is_free(host, port):
        raise ServerError(f"arm {arm.name}: port {port} is in use by another program; choose another with --port")
    python = await asyncio.to_thread(engine_python, engine)
    argv = server_argv(arm, engine=engine, python=python, host=host, port=port)
    environment = await asyncio.to_thread(_environment, arm, engine, python)
    async with supervised(argv, environment=environment, log_path=log_path, grace_s=grace_s) as child:
        started = time.monotonic()
        url = f"http://{host}:{port}"
        await _ready(arm.name, url + engine.ready_path, child, log_path, on_wait=on_wait, timeout_s=timeout_s)
        yield Server(
            url=url,
            log_path=log_path,
            pid=child.pid,
            argv=tuple(argv),
            ready_after_s=time.monotonic() - started,
            name=arm.name,
            child=child,
        )


def _environment(arm: ArmSpec, engine: Engine, python: Path) -> dict[str, str]:
    if is_own(engine):
        return own_environment()
    return engine_environment({**arm.shared_flags, **arm.flags}, cpu=is_cpu_build(python), cores=_cores())


@asynccontextmanager
async def supervised(
    argv: Sequence[str], *, environment: Mapping[str, str], log_path: Path, grace_s: float
) -> AsyncIterator[Child]:
    """Any program under the supervisor."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    ours, theirs = socket.socketpair()
    with ours, log_path.open("wb") as output:
        with theirs:
            process = _start(argv, environment, grace_s, stdin=theirs.fileno(), output=output)
        child = Child(process=process, link=ours)
        try:
            await asyncio.to_thread(child.wait_for_pid)
            yield child
        finally:
            ours.close()  # the supervisor sees this and ends the engine, whatever becomes of us now
            await asyncio.shield(asyncio.to_thread(_wait, process, grace_s + supervise.KILL_WAIT_S + 5))


def _start(
    argv: Sequence[str], environment: Mapping[str, str], grace_s: float, *, stdin: int, output: BinaryIO
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-I", "-S", supervise.__file__, str(grace_s), *argv],
        stdin=stdin,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        process_group=0,
    )


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


async def _ready(
    name: str,
    url: str,
    child: Child,
    log_path: Path,
    *,
    on_wait: OnWait,
    timeout_s: float,
) -> None:
    started = time.monotonic()
    async with httpx.AsyncClient(trust_env=False, timeout=5.0) as client:
        while True:
            code = child.code()
            if code is not None:
                raise _died(name, code, log_path)
            if await _answers(client, url):
                return
            elapsed_s = time.monotonic() - started
            if elapsed_s > timeout_s:
                raise ServerError(
                    f"arm {name}: not ready after {timeout_s:.0f} s; its log: {log_path}",
                    log.telling_lines(_tail(log_path, 200_000)),
                )
            on_wait(elapsed_s, log.last_line(_tail(log_path, _TAIL_BYTES)))
            await asyncio.sleep(POLL_S)


async def _answers(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await fetch(client, url)).status == 200
    except httpx.HTTPError:
        return False


def log_text(path: Path) -> str:
    """A server's log, whole; bytes that are no UTF-8 are replaced."""
    return path.read_text(encoding="utf-8", errors="replace")


def _tail(path: Path, most_bytes: int) -> str:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - most_bytes))
        return file.read().decode("utf-8", errors="replace")


def _died(name: str, code: int, log_path: Path) -> ServerError:
    how = f"ended with exit code {code}"
    if code < 0 or code > 128:
        killed = -code if code < 0 else code - 128
        how = f"was killed by signal {killed}"
        how += " (by the system, when memory ran out?)" if killed == signal.SIGKILL else ""
    return ServerError(f"arm {name}: the server {how}; its log: {log_path}", log.telling_lines(log_text(log_path)))
