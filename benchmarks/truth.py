"""Is the verdict right? Thousands of comparisons of emulated engines whose truth is planted, judged as a run would be.

    python benchmarks/truth.py --seed 1                                   # all four parts
    python benchmarks/truth.py --seed 1 --only causes --jobs 2
    python benchmarks/truth.py --seed 1 --seed 2 --write docs/accuracy.md

Everything is in virtual time and follows from the seed; another seed is a fresh set of cases. `planted/` draws the
cases and says what is true of them; `error_rates.py` has the error rates of the bare statistics.
"""

import argparse
import json
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

from planted import break_even, causes, effects, equals, over_http
from planted.page import SECTIONS, summary
from planted.shares import Target

PARTS: dict[str, tuple[Callable[[int, int], dict[str, Any]], int]] = {
    "aa": (equals.outcome, 420),
    "power": (effects.outcome, 240),
    "causes": (causes.outcome, 240),
    "break-even": (break_even.outcome, 200),
}
HTTP = "http"


def _one(job: tuple[str, int, int]) -> dict[str, Any]:
    part, seed, number = job
    return PARTS[part][0](seed, number)


def measured(part: str, seed: int, share: float, jobs: int) -> list[dict[str, Any]]:
    """The outcomes of a part's cases, in their order."""
    if part == HTTP:
        return [over_http.outcome(seed, number) for number in range(len(over_http.CASES))]
    count = max(4, round(PARTS[part][1] * share))
    with Pool(jobs) as pool:
        found = pool.map(_one, [(part, seed, number) for number in range(count)], chunksize=2)
        pool.close()
        pool.join()
    return found


def kept(
    folder: Path | None, part: str, seed: int, share: float, jobs: int
) -> tuple[list[dict[str, Any]], list[float]]:
    """(outcomes, [seconds, of CPU]): from a file in `folder` if there is one, else measured and written there."""
    path = None if folder is None else folder / f"{part}-{seed}-{share:g}.json"
    if path is not None and path.is_file():
        content = json.loads(path.read_text(encoding="utf-8"))
        return content["outcomes"], content["took_s"]
    began = clocks()
    outcomes = measured(part, seed, share, jobs)
    took_s = [now - then for now, then in zip(clocks(), began, strict=True)]
    print(f"{part}, seed {seed}: {took_s[0]:.0f} s, {took_s[1]:.0f} s of CPU", file=sys.stderr)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"outcomes": outcomes, "took_s": took_s}), encoding="utf-8")
    return outcomes, took_s


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
    parser.add_argument("--http", action="store_true", help="also four comparisons over loopback (some minutes)")
    parser.add_argument("--keep", type=Path, help="folder of outcomes; those that are there are not drawn again")
    parser.add_argument("--write", type=Path, help="also write the page to this file")
    options = parser.parse_args()
    seeds, parts = options.seed or [1], options.only or list(PARTS)
    lines: list[str] = []
    targets: list[Target] = []
    spent_s = {seed: [0.0, 0.0] for seed in seeds}
    for part in parts + [HTTP] * options.http:
        outcomes = {}
        for seed in seeds[:1] if part == HTTP else seeds:
            outcomes[seed], took_s = kept(options.keep, part, seed, options.share, options.jobs)
            spent_s[seed] = [sum(pair) for pair in zip(spent_s[seed], took_s, strict=True)]
        section, found = SECTIONS[part](outcomes)
        lines += section
        targets += found
    page = "\n".join([*head(spent_s, options, targets), *lines]).rstrip() + "\n"
    print(page)
    if options.write:
        options.write.write_text(page, encoding="utf-8")


def head(spent_s: dict[int, list[float]], options: argparse.Namespace, targets: list[Target]) -> list[str]:
    """What this page is, how it was made, and what missed."""
    words = ["python", "benchmarks/truth.py", *(f"--seed={seed}" for seed in spent_s)]
    words += [f"--only={part}" for part in options.only or ()]
    words += ["--http"] * options.http
    words += [f"--share={options.share:g}"] if options.share != 1 else []
    command = shlex.join(words)
    times = ", ".join(
        f"seed {seed} {wall / 60:.1f} min ({cpu / 60:.1f} of CPU)" for seed, (wall, cpu) in spent_s.items()
    )
    return [
        "# How often the verdict is right",
        "",
        f"Written by `{command}` on {date.today().isoformat()}, not by hand.",
        f"It took, with {options.jobs} processes: {times}.",
        "Cores that do nothing else need the CPU time divided by their number.",
        "",
        "The engines are emulated in virtual time (`loadgen/emulator/`), so that what is true of them is known: it is",
        "planted. Every comparison is planned, recorded and judged by the code that judges a run on a real engine.",
        "Of what the emulator does not model these figures do not speak. Shares stand with 95 % intervals: Wilson's;",
        "where rows of one comparison go together, over comparisons.",
        "",
        *summary(targets),
    ]


if __name__ == "__main__":
    main()
