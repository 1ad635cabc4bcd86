"""How true loadgen's instants are, against a server that records when it really sent.

    python benchmarks/fidelity.py [--streams 60] [--interval-ms 20] [--rate 200] [--seconds 15] [--many] [--realtime]

Both processes are on this machine and share CLOCK_MONOTONIC; each has a core of its own.
1. Stamps: `--streams` streams in a closed loop, one token each per interval (60 at 20 ms are 3,000 tokens a second).
   Error of an instant = loadgen's stamp - the server's instant just before its write; TTFT is compared through the
   instant of the first token, gaps through the difference of neighbours.
2. Pacing: an open loop with Poisson arrivals at `--rate`: lag = sent - due, and the rate that was achieved.
   Other programs of the machine that get a turn on these cores (a kernel thread, an agent: 3 to 15 ms were seen) delay
   client and server alike and show in the tails; `--realtime` keeps them off, so that what is left is loadgen's own.
3. `--many`: 100,000 short requests in a closed loop: growth of this process's memory over the run.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil

from loadgen.clock import Clock
from loadgen.drive import health
from loadgen.drive.client import Client
from loadgen.drive.run import Stop, drive_stage
from loadgen.records import Health, Request, Run, Sample, StageMark, StagePlan, StageSpec

HERE = Path(__file__).resolve().parent
MIB = 2**20
MANY = 100_000


@contextmanager
def firehose(interval_ms: float, record: Path | None = None) -> Iterator[int]:
    """The server's port, while it runs on core 1."""
    argv = [sys.executable, str(HERE / "firehose.py"), "--core", "1", "--interval-ms", str(interval_ms)]
    if record is not None:
        argv += ["--record", str(record)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        if server.stdout is None or server.stdin is None:
            raise RuntimeError("no pipes")
        yield int(server.stdout.readline())
        server.stdin.close()
        server.wait()


def body_of(request: Request) -> bytes:
    """A request that the server can tell by its index."""
    return json.dumps(
        {"prompt": [1, 2, 3, 4], "max_tokens": request.output_tokens, "user": str(request.index)}
    ).encode()


class Drive:
    """Drives one stage and keeps what the benchmark asks about."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.samples: list[Sample] = []
        self.marks: list[StageMark] = []
        self.health: list[Health] = []

    async def stage(self, plan: StagePlan, keep: bool = True) -> "Drive":
        """Drives `plan`."""
        clock = Clock(origin=0.0)
        url = f"http://127.0.0.1:{self.port}"
        async with Client(base_url=url, endpoint="completions", clock=clock) as client:
            watching = asyncio.create_task(health.watch(clock, self.health.append, lambda: client.in_flight))
            await drive_stage(
                plan,
                client=client,
                clock=clock,
                body_of=body_of,
                sink=self.samples.append if keep else _drop,
                marks=self.marks.append,
                stop=Stop(),
            )
            watching.cancel()
        failures = {sample.failure for sample in self.samples if sample.failure}
        if failures or any(mark.failed for mark in self.marks):
            raise SystemExit(f"requests failed: {failures}")
        return self


def _drop(sample: Sample) -> None:
    if sample.failure:
        raise SystemExit(f"request failed: {sample.failure}")


def requests(count: int, tokens: int, due_s: list[float] | None = None) -> tuple[Request, ...]:
    """Short prompts, `tokens` tokens each."""
    run = (Run("k", 4),)
    return tuple(
        Request(index=n, runs=run, output_tokens=tokens, due_s=None if due_s is None else due_s[n])
        for n in range(count)
    )


def errors_of(samples: list[Sample], sent: dict[int, list[float]]) -> dict[str, np.ndarray]:
    """Errors in seconds of first tokens and of gaps; every token of every request."""
    first, gaps = [], []
    for sample in samples:
        seen, true = np.array(sample.events_s), np.array(sent[sample.index])
        if len(seen) != len(true):
            raise SystemExit(f"request {sample.index}: {len(seen)} events seen, {len(true)} sent")
        first.append(seen[0] - true[0])
        gaps.append(np.diff(seen) - np.diff(true))
    return {"ttft_error_s": np.array(first), "gap_error_s": np.abs(np.concatenate(gaps))}


def quantiles(values: np.ndarray) -> dict[str, float]:
    """p50, p99 and the largest."""
    return {"p50": float(np.quantile(values, 0.5)), "p99": float(np.quantile(values, 0.99)), "max": float(values.max())}


def stamps(arguments: argparse.Namespace) -> dict[str, object]:
    """Part 1."""
    tokens = round(arguments.seconds * 1000 / arguments.interval_ms / 5)
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "sent.jsonl"
        with firehose(arguments.interval_ms, record) as port:
            spec = StageSpec(name="stamps", role="saturated", concurrency=arguments.streams)
            plan = StagePlan(spec=spec, warmup=(), requests=requests(arguments.streams * 5, tokens))
            drive = asyncio.run(Drive(port).stage(plan))
        lines = map(json.loads, record.read_text().splitlines())
        sent = {int(line["id"]): line["at"] for line in lines}
    mark = drive.marks[0]
    rate = sum(len(sample.events_s) for sample in drive.samples) / (mark.ended_s - mark.started_s)
    return {
        "tokens_per_s": rate,
        "tokens": sum(map(len, sent.values())),
        **{name: quantiles(values) for name, values in errors_of(drive.samples, sent).items()},
        "loop_lag_max_s": max(one.loop_lag_max_s for one in drive.health),
        "client_cpu_ratio": sum(one.cpu_s for one in drive.health) / sum(one.interval_s for one in drive.health),
    }


def pacing(arguments: argparse.Namespace) -> dict[str, object]:
    """Part 2."""
    source = random.Random(1)
    count = round(arguments.rate * arguments.seconds)
    gaps = [source.expovariate(1.0) for _ in range(count)]
    scale = arguments.seconds / sum(gaps)
    due_s = list(np.cumsum(gaps) * scale)
    with firehose(arguments.interval_ms) as port:
        spec = StageSpec(name="pacing", role="open_loop", rate_per_s=arguments.rate)
        warmup = requests(round(arguments.rate), 10)
        plan = StagePlan(spec=spec, warmup=warmup, requests=requests(count, 10, due_s))
        drive = asyncio.run(Drive(port).stage(plan))
    samples = [sample for sample in drive.samples if not sample.warmup]
    lags = np.array([sample.lag_s for sample in samples], dtype=float)
    span_s = max(sample.sent_s for sample in samples) - drive.marks[-1].started_s
    achieved = len(samples) / span_s
    return {
        "requests": len(samples),
        "rate_per_s": arguments.rate,
        "achieved_per_s": achieved,
        "rate_error_ratio": achieved / arguments.rate - 1,
        "lag_s": quantiles(lags),
        "lag_min_s": float(lags.min()),
        "client_cpu_ratio": sum(one.cpu_s for one in drive.health) / sum(one.interval_s for one in drive.health),
    }


def many(arguments: argparse.Namespace) -> dict[str, object]:
    """Part 3."""
    with firehose(0) as port:
        spec = StageSpec(name="many", role="saturated", concurrency=64)
        plan = StagePlan(spec=spec, warmup=requests(64, 4), requests=requests(MANY, 4))
        drive = Drive(port)
        before = psutil.Process().memory_info().rss
        started, used = time.monotonic(), time.process_time()
        asyncio.run(drive.stage(plan, keep=False))
        took_s, used_s = time.monotonic() - started, time.process_time() - used
        after = psutil.Process().memory_info().rss
    return {
        "requests": MANY,
        "seconds": took_s,
        "cpu_s_per_request": used_s / MANY,
        "rss_growth_mib": (max(one.rss_bytes for one in drive.health) - before) / MIB,
        "rss_growth_at_end_mib": (after - before) / MIB,
    }


def verdicts(results: dict[str, dict[str, object]]) -> list[tuple[str, bool]]:
    """What was promised, and whether it was kept."""
    said = []
    if found := results.get("stamps"):
        for name in ("ttft_error_s", "gap_error_s"):
            said.append((f"{name} p99 <= 1 ms", found[name]["p99"] <= 1e-3))  # type: ignore[index]
    if found := results.get("pacing"):
        said.append(("send lag p99 <= 2 ms", found["lag_s"]["p99"] <= 2e-3))  # type: ignore[index]
        said.append(("achieved rate within 0.5 %", abs(found["rate_error_ratio"]) <= 5e-3))  # type: ignore[arg-type]
    if found := results.get("many"):
        said.append(("memory grows by < 50 MiB", found["rss_growth_mib"] < 50))  # type: ignore[operator]
    return said


def main() -> int:
    """Runs the parts and prints what they found; 1 if a promise was not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=60)
    parser.add_argument("--interval-ms", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--many", action="store_true", help="only the 100,000 short requests")
    parser.add_argument("--realtime", action="store_true", help="SCHED_FIFO for client and server (root)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    os.sched_setaffinity(0, {0})
    parts = {"many": many} if arguments.many else {"stamps": stamps, "pacing": pacing}
    results = {name: part(arguments) for name, part in parts.items()}
    kept = verdicts(results)
    if arguments.json:
        print(json.dumps({**results, "kept": dict(kept)}))
    else:
        for name, found in results.items():
            for key, value in found.items():
                print(f"{name:8} {key:22} {_text(value)}")
        for promise, holds in kept:
            print(f"{promise}: {'kept' if holds else 'NOT KEPT'}")
    return 0 if all(holds for _, holds in kept) else 1


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{name} {number * 1e3:.3f} ms" for name, number in value.items())
    return f"{value:,.6g}"


if __name__ == "__main__":
    sys.exit(main())
