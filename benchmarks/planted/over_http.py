"""Over HTTP.

The same judgement with nothing left out: `loadgen compare` starts two emulated servers, drives them over loopback with
the client that measures real ones, scrapes them and reads their log. Four machines near the CPU profile, each with one
thing planted: memory that becomes work; a cache that is not read in place; a dearer prefill; too few batch slots. Three
blocks per arm, servers that stay up. The verdict on each cause should be that of virtual time, and what is planted.
"""

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from loadgen import store
from loadgen.analysis.judge import judge
from loadgen.emulator import profile as profiles
from loadgen.emulator.arm import emulated
from loadgen.emulator.profile import Profile
from loadgen.engines.kv_formats import likely_capacity_ratio
from loadgen.experiment.simulate import simulated
from loadgen.records import Report
from loadgen.workload import plan
from loadgen.workload.model import Scenario

SCENARIO: dict[str, Any] = {
    "name": "planted",
    "repeats": 3,
    "workload": {"input_tokens": {"range": [64, 320]}, "output_tokens": {"range": [24, 64]}},
    "stages": [
        {
            "name": "one-stream",
            "concurrency": 1,
            "requests": 8,
            "warmup": 1,
            "input_tokens": {"range": [64, 1500]},
            "output_tokens": 32,
        },
        {"name": "saturated", "concurrency": 16, "requests": 48, "warmup": 8},
    ],
}
NOISE = {"step": 0.03, "wander": 0.005}
TIGHT = {"kv-cache-memory-bytes": str(2048 * 32_768), "max-model-len": "1800", "max-num-seqs": "64"}
AMPLE = {**TIGHT, "kv-cache-memory-bytes": str(16_384 * 32_768)}


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A name, what it changes in the profile's fp8, the flags of both arms, and the one verdict that is planted."""

    name: str
    cause: str
    verdict: str
    fp8: dict[str, Any] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)


CASES = (
    Planted(name="freed memory becomes work", cause="unused memory", verdict="does not hold", flags=TIGHT),
    Planted(name="not read in place", cause="backend", verdict="holds", fp8={"read_penalty": 3.0}, flags=TIGHT),
    Planted(
        name="dearer prefill", cause="conversion", verdict="holds", fp8={"conversion_prefill_s": 1e-4}, flags=TIGHT
    ),
    Planted(name="too few slots", cause="unused memory", verdict="holds", flags={**AMPLE, "max-num-seqs": "8"}),
)


def machine(case: Planted) -> Profile:
    """The CPU profile with an fp8 cache that is read in place at 0.6 of the time, and what the case plants."""
    content = profiles.load("cpu-tiny-llama").model_dump()
    bandwidth = content["step"]["attention_bandwidth_bytes_per_s"] * 0.5 / 0.6
    fp8 = {"backend": "CPU_ATTN", "attention_bandwidth_bytes_per_s": bandwidth, **case.fp8}
    content.update(formats={"bfloat16": {"backend": "CPU_ATTN"}, "fp8": fp8}, noise=NOISE)
    return Profile.model_validate(content)


def outcome(seed: int, number: int) -> dict[str, Any]:
    """The verdicts over HTTP and in virtual time, and throughput and ITL ratios of both."""
    case = CASES[number]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measured = _compared(case, seed, folder)
        experiment = store.read_experiment(folder / "run")
    scenario = Scenario.model_validate({**SCENARIO, "seed": seed})
    engines = [emulated(machine(case), {"kv-cache-dtype": kind, **case.flags}) for kind in ("bfloat16", "fp8")]
    virtual = judge(
        simulated(experiment.manifest, plan.build(scenario), engines, seed=seed), predicted_ratio=likely_capacity_ratio
    )
    return {
        "name": case.name,
        "cause": case.cause,
        "planted": case.verdict,
        "http": _said(measured),
        "virtual": _said(virtual),
    }


def _compared(case: Planted, seed: int, folder: Path) -> Report:
    files = {
        "profile.yaml": machine(case).model_dump(exclude_none=True),
        "scenario.yaml": {**SCENARIO, "seed": seed},
        "shared.yaml": {"profile": str(folder / "profile.yaml"), "enable-prefix-caching": False, **case.flags},
        "bf16.yaml": {"kv-cache-dtype": "bfloat16"},
        "fp8.yaml": {"kv-cache-dtype": "fp8"},
    }
    for file, content in files.items():
        (folder / file).write_text(yaml.safe_dump(content), encoding="utf-8")
    command = [sys.executable, "-m", "loadgen", "compare", str(folder / "scenario.yaml"), "--engine", "emulator"]
    command += [
        "--arm",
        str(folder / "bf16.yaml"),
        "--arm",
        str(folder / "fp8.yaml"),
        "--shared",
        str(folder / "shared.yaml"),
    ]
    command += ["--restart", "never", "--out", str(folder / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"loadgen compare: exit {done.returncode}: {done.stderr[-2000:]}")
    return judge(store.read_experiment(folder / "run"), predicted_ratio=likely_capacity_ratio)


def _said(report: Report) -> dict[str, Any]:
    ratios = {(one.stage, one.quantity): one.ratio.center for one in report.differences}
    return {
        "findings": {one.cause: one.verdict for one in report.findings},
        "headlines": {one.stage: one.verdict for one in report.headlines},
        "throughput": ratios.get(("saturated", "output_tokens_per_s")),
        "itl": ratios.get(("one-stream", "itl_p50_s")),
        "ttft": ratios.get(("one-stream", "ttft_p50_s")),
    }
