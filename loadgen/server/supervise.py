"""The process between loadgen and an engine: it sees to it that no part of the engine outlives loadgen.

    python supervise.py GRACE_S PROGRAM [ARGUMENT ...]

Standard input is one end of a socket pair whose other end only loadgen holds. When that end closes, for whatever reason
(loadgen asks for a stop, ends, crashes, is killed with `kill -9`), the engine's process group gets TERM, and whatever
is left after GRACE_S seconds gets KILL. A parent-death signal alone would not do: it is per process, cleared for
grandchildren, and fires when the thread that forked ends. Here the supervisor is the "subreaper" (Linux): the engine's
orphans become its children wherever they hid, so it finds them all. If the supervisor itself is killed, the engine's
first process gets KILL as a parent-death signal.

Writes the engine's process id and a newline to standard input's socket, then its exit code and a newline as soon as its
first process has ended. Ends itself with that code (128 + signal for a signal, 127 if it cannot be started) when all
are gone. Standard library only, single-threaded, asleep while nothing happens.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LINUX = sys.platform == "linux"
KILL_WAIT_S = 5.0


class _Ended(Exception):
    """No child is left."""


def main() -> int:
    """Runs the engine until it ends or loadgen does; returns its exit code."""
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake = _wake_on(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=_die_with_parent)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: cannot be started: {error.strerror}\n")
        return 127
    _tell(child.pid)
    family = Family(child.pid)
    family.run_until_told(wake)
    if family.code is not None:
        _tell(_as_shells_do(family.code))
    family.end(grace_s, wake)
    child.returncode = family.code
    return 0 if family.code is None else _as_shells_do(family.code)


class Family:
    """The engine and everything that it forked."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.code: int | None = None  # of the leader; negative for a signal

    def run_until_told(self, wake: int) -> None:
        """Returns when the leader has ended, when standard input closes, or when this process is told to end."""
        while self.code is None:
            ready, _, _ = select.select([0, wake], [], [])
            if 0 in ready and not os.read(0, 64):
                return
            if wake in ready and set(os.read(wake, 64)) - {signal.SIGCHLD}:
                return
            with contextlib.suppress(_Ended):
                self.reap()

    def end(self, grace_s: float, wake: int) -> None:
        """TERM to the group, then KILL to everything that is left after `grace_s`. Returns when all are gone."""
        try:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.leader, signal.SIGTERM)
            self._wait(grace_s, wake)
            until = time.monotonic() + KILL_WAIT_S
            while time.monotonic() < until:  # again and again: a child may fork while it is being killed
                self._kill_all()
                self._wait(0.05, wake)
        except _Ended:
            return

    def reap(self) -> None:
        """Collects every child that has ended. Raises _Ended if none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                raise _Ended from None
            if pid == 0:
                return
            if pid == self.leader:
                self.code = os.waitstatus_to_exitcode(status)

    def _wait(self, seconds: float, wake: int) -> None:
        until = time.monotonic() + seconds
        while True:
            self.reap()
            left = until - time.monotonic()
            if left <= 0:
                return
            if select.select([wake], [], [], left)[0]:
                os.read(wake, 64)

    def _kill_all(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.leader, signal.SIGKILL)
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """Every process below `root`, as /proc tells; empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _tell(number: int) -> None:
    with contextlib.suppress(OSError):
        os.write(0, b"%d\n" % number)


def _as_shells_do(code: int) -> int:
    return code if code >= 0 else 128 - code


def _prctl(option: int, value: int) -> None:
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wake_on(*signals: signal.Signals) -> int:
    """A descriptor that becomes readable, with the signal's number, when one of `signals` arrives."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in signals:
        signal.signal(number, _noted)
    return reader


def _noted(number: int, frame: FrameType | None) -> None:
    """The wake-up descriptor already says so."""


if __name__ == "__main__":
    sys.exit(main())
