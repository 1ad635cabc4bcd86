"""Imports a generated BurstGPT-like file of five million rows: peak memory, and rows per second.

    python -m benchmarks.trace_import [--rows N] [--disorder]

The file is written to a temporary folder and thrown away. `--disorder`: every tenth row is up to an hour late in the
file, as where several logs were put one after the other. The import runs in a process of its own, so that the peak is
its alone. Figures are of the machine that it runs on.
"""

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEADER = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def write_source(path: Path, rows: int, disorder: bool) -> None:
    """BurstGPT 3's columns: two thirds with a session, one row in thirteen failed."""
    rng = random.Random(1)
    at_s = 5.0
    with path.open("w", encoding="utf-8") as file:
        file.write(HEADER)
        for number in range(rows):
            at_s += rng.expovariate(0.56)
            asked, answered = rng.randrange(1, 3000), 0 if number % 13 == 0 else rng.randrange(1, 900)
            session = "" if number % 3 == 0 else f"{rng.randrange(rows // 4):08x}-1111-4222-8333-944455556666"
            written_s = max(0.0, at_s - rng.random() * 3600) if disorder and number % 10 == 0 else at_s
            log = "Conversation log" if session else "API log"
            file.write(
                f"{written_s:.1f},{session},{answered * 0.03:.2f},GPT-4,{asked},{answered},{asked + answered},{log}\n"
            )


def main() -> None:
    """Generates, imports, prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--disorder", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "burst.csv", Path(folder) / "burst.trace.jsonl"
        write_source(source, asked.rows, asked.disorder)
        began_s = time.monotonic()
        subprocess.run([sys.executable, "-m", "loadgen", "trace", "import", str(source), "-o", str(out)], check=True)
        took_s = time.monotonic() - began_s
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"{asked.rows:,} rows, {source.stat().st_size / 2**20:.0f} MiB -> {out.stat().st_size / 2**20:.0f} MiB")
        cpu_s = used.ru_utime + used.ru_stime
        print(f"peak memory {used.ru_maxrss / 1024:.0f} MiB")
        print(
            f"{took_s:.0f} s, {asked.rows / took_s:,.0f} rows/s; {cpu_s:.0f} s of CPU, {asked.rows / cpu_s:,.0f} rows/s"
        )


if __name__ == "__main__":
    main()
