"""A loadgen that is killed with `kill -9`: no process is left; what was written can be read, reported and resumed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from loadgen.records import Experiment
from loadgen.store import read_experiment

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "tests" / "fakes" / "quick.yaml"
REQUESTS = 100
SCENARIO = f"""
name: tiny
description: "long enough to be killed in"
seed: 1
repeats: 1
workload: {{input_tokens: {{range: [8, 24]}}, output_tokens: {{range: [20, 30]}}}}
stages:
  - {{name: one-stream, concurrency: 1, requests: {REQUESTS}, warmup: 1}}
  - {{name: busy, concurrency: 4, requests: {REQUESTS}, warmup: 2}}
"""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "loadgen", *map(str, arguments)]


def loadgen(*arguments: object) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60, env=env, check=False)


def wait_until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


def gone(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def lines_of(run: Path, order: int) -> int:
    """Samples of the block at `order` that have reached the disk."""
    return sum(path.read_bytes().count(b"\n") for path in run.glob(f"blocks/{order:03d}-*/samples.jsonl"))


def killed(arguments: list[object], moment: Callable[[], object]) -> None:
    """Starts loadgen, kills it at that moment, and waits until everything that it had started is gone."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command(*arguments), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as going:
        try:
            wait_until(lambda: moment() or going.poll() is not None)
            assert going.poll() is None, "it ended before it could be killed"
            family = psutil.Process(going.pid).children(recursive=True)
        finally:
            going.send_signal(signal.SIGKILL)
    assert len(family) >= 2  # the supervisor and the server
    wait_until(lambda: all(map(gone, family)), 10.0)


def assert_exact(experiment: Experiment) -> None:
    for block in experiment.blocks:
        for mark in block.marks:
            of_part = [s for s in block.samples if (s.stage, s.warmup) == (mark.stage, mark.warmup)]
            assert mark.planned == mark.sent + mark.unsent
            assert mark.sent == mark.ok + mark.failed == len(of_part) == len({s.index for s in of_part})
            assert mark.ok == sum(s.ok for s in of_part)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the supervisor's guarantees are Linux's")
def test_killed_twice_and_completed(tmp_path):
    scenario, run = tmp_path / "tiny.yaml", tmp_path / "run"
    scenario.write_text(SCENARIO)
    arms = ("--engine", "emulator", "--arm", "bf16", "--arm", "fp8", "--set", f"profile={PROFILE}")

    killed(["compare", scenario, *arms, "--out", run], lambda: lines_of(run, 0))
    (cut,) = read_experiment(run).blocks
    assert (cut.manifest.order, cut.end) == (0, None)
    assert 0 < len(cut.samples) < 2 * REQUESTS + 3
    assert_exact(read_experiment(run))
    reported = loadgen("report", run)
    assert reported.returncode == 0, reported.stderr
    assert "bf16: no block is complete (block 0 was cut off)" in " ".join(reported.stdout.split())

    killed(["compare", "--resume", run], lambda: lines_of(run, 1))
    first, again, second = sorted(
        read_experiment(run).blocks, key=lambda block: (block.manifest.order, bool(block.end))
    )
    assert [block.end and block.end.how for block in (first, again, second)] == [None, "complete", None]
    assert first == cut
    assert loadgen("report", run).returncode == 0

    resumed = loadgen("compare", "--resume", run)
    assert resumed.returncode == 0, resumed.stderr
    experiment = read_experiment(run)
    assert_exact(experiment)
    complete = [block for block in experiment.blocks if block.end and block.end.how == "complete"]
    assert [block.manifest.order for block in complete] == [0, 1]
    for block in complete:
        assert {(mark.stage, mark.warmup): mark.ok for mark in block.marks} == {
            ("one-stream", True): 1,
            ("one-stream", False): REQUESTS,
            ("busy", True): 2,
            ("busy", False): REQUESTS,
        }
    assert len({block.manifest.plan_digest for block in experiment.blocks}) == 1
