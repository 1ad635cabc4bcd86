"""Planted faults of the server's process: it dies, it does not end, it leaves a child behind."""

import asyncio
import os
import signal
import subprocess

from starlette.types import ASGIApp, Receive, Scope, Send


def dies(app: ASGIApp, code: int) -> ASGIApp:
    """The process ends as the request comes, without a word: what the other requests had is cut off."""

    async def planted(scope: Scope, receive: Receive, send: Send) -> None:
        os._exit(code)

    return planted


def ignore_term() -> None:
    """From here on nothing but KILL ends this process."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


async def never() -> None:
    """Does not return."""
    await asyncio.Event().wait()


def leak_child(seconds: float) -> int:
    """Starts a process in a session of its own, whose parent ends at once and which ignores TERM; gives its id.

    It ends by itself after `seconds`.
    """
    script = f"trap '' TERM; sleep {seconds:g} >/dev/null 2>&1 & echo $!"
    done = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True, check=True)
    return int(done.stdout)
