"""Machines to draw from: coefficients around those of real ones, and the noise that a real machine has."""

from typing import Any, Literal

import numpy as np

from loadgen.emulator import profile as profiles
from loadgen.emulator.noise import NoiseSpec
from loadgen.emulator.profile import Profile

Rng = np.random.Generator
Kind = Literal["h100", "a100", "cpu"]
KINDS: tuple[Kind, ...] = ("h100", "a100", "cpu")

# A100 against H100 (80 GB, SXM), by their data sheets: 2.04 to 3.35 TB/s, 312 to 989 TFLOP/s in bf16.
A100_BANDWIDTH = 2.04 / 3.35
A100_COMPUTE = 312 / 989


def profile(rng: Rng, kind: Kind) -> Profile:
    """A machine near `kind`: each coefficient up to a third lower or a half higher, fp8 read at 0.5 to 0.85 of bf16."""
    shipped = profiles.load("cpu-tiny-llama" if kind == "cpu" else "h100-llama3.1-8b")
    content = shipped.model_dump()
    step = content["step"]
    if kind == "a100":
        content.update(name="a100-like", gpu="NVIDIA A100-SXM4-80GB")
        for name in ("weight_bandwidth_bytes_per_s", "attention_bandwidth_bytes_per_s"):
            step[name] *= A100_BANDWIDTH
        for name in ("token_s", "prefill_pair_s"):
            step[name] /= A100_COMPUTE
    for name in step:
        step[name] *= about(rng, 1.5)
    content["formats"] = {"bfloat16": {"backend": _backend(kind)}, "fp8": fused(rng, kind, step)}
    return Profile.model_validate(content)


def fused(rng: Rng, kind: Kind, step: dict[str, Any]) -> dict[str, Any]:
    """The keys of an fp8 cache that is read in place: half the bytes, at 0.5 to 0.85 of bf16's time per token."""
    slope_ratio = rng.uniform(0.5, 0.85)
    bandwidth = step["attention_bandwidth_bytes_per_s"] * 0.5 / slope_ratio
    return {"backend": _backend(kind), "attention_bandwidth_bytes_per_s": bandwidth}


def _backend(kind: Kind) -> str:
    return "CPU_ATTN" if kind == "cpu" else "FLASH_ATTN"


def about(rng: Rng, factor: float) -> float:
    """A factor between 1 / `factor` and `factor`, even on the log scale."""
    return float(np.exp(rng.uniform(-np.log(factor), np.log(factor))))


def noise(rng: Rng, kind: Kind) -> NoiseSpec:
    """Noise from that of a GPU alone in its machine to that of a shared CPU."""
    busy = kind == "cpu"
    return NoiseSpec(
        step=float(rng.uniform(0.005, 0.1 if busy else 0.05)),
        start=float(rng.uniform(0.0, 0.02 if busy else 0.01)),
        wander=float(rng.choice([0.0, rng.uniform(0.002, 0.03 if busy else 0.01)])),
        wander_s=float(np.exp(rng.uniform(np.log(10), np.log(600)))),
        hiccups_per_minute=float(rng.choice([0.0, rng.uniform(0.5, 10.0)])),
        hiccup_s=float(np.exp(rng.uniform(np.log(0.005), np.log(0.2)))),
    )
