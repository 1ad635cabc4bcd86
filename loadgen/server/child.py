"""A program under the supervisor (`supervise`), as loadgen sees it: its process id, and how it ended."""

import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field

TOLD_WITHIN_S = 30.0


@dataclass(slots=True, kw_only=True)
class Child:
    """`process` is the supervisor's own; `link` is loadgen's end of the socket pair on which it tells."""

    process: "subprocess.Popen[bytes]"
    link: socket.socket
    pid: int = 0  # the program's; 0 until told, and where it could not be started
    _told: bytes = field(default=b"", repr=False)

    def wait_for_pid(self) -> None:
        """Waits until the supervisor has told `pid`."""
        self.link.settimeout(TOLD_WITHIN_S)
        while b"\n" not in self._told:
            piece = self.link.recv(32)
            if not piece:
                return
            self._told += piece
        self.link.settimeout(0)
        self.pid = int(self._told.partition(b"\n")[0])

    def code(self) -> int | None:
        """The program's exit code (128 + signal for a signal); None while it runs.

        Known as soon as the program's first process has ended: the supervisor itself goes on until its last child is
        gone, and one that ignores TERM keeps it for the whole grace.
        """
        with suppress(OSError):  # nothing new, or closed
            self._told += self.link.recv(32)
        ended = self._told.split(b"\n")[1:-1]
        return int(ended[0]) if ended else self.process.poll()
