"""Stands in for an engine: answers /health after a while, or dies, or leaves children that refuse to go."""

import http.server
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('stubborn', flush=True); time.sleep(600)"
)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def flag(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Quiet."""


def main() -> None:
    say("INFO 11-30 14:45:05 [x.py:1] loading")
    if "--fails" in sys.argv:
        say("ValueError: No available memory for the cache blocks.")
        sys.exit(1)
    if "--killed" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    if "--hangs" in sys.argv:
        time.sleep(600)
    if "--children" in sys.argv:  # one in the group, one that hid in a session of its own; both ignore TERM
        for hides in (False, True):
            child = subprocess.Popen([sys.executable, "-c", STUBBORN], start_new_session=hides, stdout=subprocess.PIPE)
            child.stdout.readline()
            with Path(flag("--children")).open("a", encoding="utf-8") as file:
                file.write(f"{child.pid}\n")
    http.server.HTTPServer(("127.0.0.1", int(flag("--port"))), Health).serve_forever()


main()
