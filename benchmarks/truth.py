"""Is the verdict right? Thousands of comparisons of emulated engines whose truth is planted, judged as a run would be.

    python benchmarks/truth.py --seed 1                                   # all four parts
    python benchmarks/truth.py --seed 1 --only causes --jobs 2
    python benchmarks/truth.py --seed 1 --seed 2 --write docs/accuracy.md

Everything is in virtual time and follows from the seed; another seed is a fresh set of cases. `planted/` draws the
cases and says what is true of them; `error_rates.py` has the error rates of the bare statistics.
"""

import argparse
import os
import resource
import shlex
import sys
import time
from collections.abc import Callable
from datetime import date
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from planted import break_even, causes, effects, equals
from planted.page import SECTIONS

PARTS: dict[str, tuple[Callable[[int, int], dict[str, Any]], int]] = {
    "aa": (equals.outcome, 420),
    "power": (effects.outcome, 240),
    "causes": (causes.outcome, 240),
    "break-even": (break_even.outcome, 200),
}


def _one(job: tuple[str, int, int]) -> dict[str, Any]:
    part, seed, number = job
    return PARTS[part][0](seed, number)


def measured(part: str, seed: int, share: float, jobs: int) -> list[dict[str, Any]]:
    """The outcomes of a part's cases, in their order."""
    count = max(4, round(PARTS[part][1] * share))
    with Pool(jobs) as pool:
        found = pool.map(_one, [(part, seed, number) for number in range(count)], chunksize=2)
        pool.close()
        pool.join()
    return found


def clocks() -> tuple[float, float]:
    """(now, CPU time of the processes that have ended), seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic(), used.ru_utime + used.ru_stime


def main() -> None:
    """Runs the parts asked for, prints the page, and writes it where asked."""
    parser = argparse.ArgumentParser(description="Verdicts against planted truth.")
    parser.add_argument("--seed", type=int, action="append", help="cases to draw; give several for several columns [1]")
    parser.add_argument("--only", choices=list(PARTS), action="append", help="this part alone [all]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes [one per core]")
    parser.add_argument("--share", type=float, default=1.0, help="share of the cases, for a quick look [1]")
    parser.add_argument("--write", type=Path, help="also write the page to this file")
    options = parser.parse_args()
    seeds, parts = options.seed or [1], options.only or list(PARTS)
    lines: list[str] = []
    misses: list[str] = []
    took_s: dict[int, tuple[float, float]] = dict.fromkeys(seeds, (0.0, 0.0))
    for part in parts:
        outcomes = {}
        for seed in seeds:
            began = clocks()
            outcomes[seed] = measured(part, seed, options.share, options.jobs)
            wall_s, cpu_s = (now - then for now, then in zip(clocks(), began, strict=True))
            took_s[seed] = (took_s[seed][0] + wall_s, took_s[seed][1] + cpu_s)
            print(f"{part}, seed {seed}: {wall_s:.0f} s, {cpu_s:.0f} s of CPU", file=sys.stderr)
        section, missed = SECTIONS[part](outcomes)
        lines += section
        misses += missed
    page = "\n".join([*head(took_s, options.jobs, misses), *lines]).rstrip() + "\n"
    print(page)
    if options.write:
        options.write.write_text(page, encoding="utf-8")


def head(took_s: dict[int, tuple[float, float]], jobs: int, misses: list[str]) -> list[str]:
    """What this page is, how it was made, and what missed."""
    command = shlex.join(["python", "benchmarks/truth.py", *sys.argv[1:]])
    times = ", ".join(
        f"seed {seed} {wall / 60:.1f} min ({cpu / 60:.1f} of CPU)" for seed, (wall, cpu) in took_s.items()
    )
    return [
        "# How often the verdict is right",
        "",
        f"Written by `{command}` on {date.today().isoformat()}, with {jobs} processes: {times}. Not edited by hand.",
        "",
        "The engines are emulated in virtual time (`loadgen/emulator/`), so that what is true of them is known: it is",
        "planted. Every comparison is planned, recorded and judged by the code that judges a run on a real engine.",
        "Of what the emulator does not model these figures do not speak. Shares stand with 95 % intervals: Wilson's;",
        "where rows of one comparison go together, over comparisons.",
        "",
        "**What is outside its target:**",
        "",
        *([f"* {line}" for line in misses] or ["nothing."]),
        "",
        "*missed*: the whole interval of the share lies outside. *not told apart*: the share does, its interval",
        "reaches in; where a true rate is 5 %, half of such shares lie above it.",
        "",
    ]


if __name__ == "__main__":
    main()
