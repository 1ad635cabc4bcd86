"""Machines to draw from: coefficients around those of real ones, and the noise that a real machine has."""

from typing import Any, Literal

import numpy as np

from loadgen.emulator import profile as profiles
from loadgen.emulator.noise import NoiseSpec
from loadgen.emulator.profile import Profile

Rng = np.random.Generator
Kind = Literal["h100", "a100", "cpu"]
KINDS: tuple[Kind, ...] = ("h100", "a100", "cpu")

SHIPPED = {"h100": "h100-llama3.1-8b", "a100": "a100-llama3.1-8b", "cpu": "cpu-tiny-llama"}


def profile(rng: Rng, kind: Kind) -> Profile:
    """A machine near the shipped one: each coefficient up to 1.5 times lower or higher, fp8 read in place."""
    content = profiles.load(SHIPPED[kind]).model_dump()
    step = content["step"]
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
    per_minute = float(np.exp(rng.uniform(np.log(0.5), np.log(200 if busy else 10))))
    lost = rng.uniform(0.0005, 0.01)  # share of the time
    return NoiseSpec(
        step=float(rng.uniform(0.005, 0.1 if busy else 0.05)),
        start=float(rng.uniform(0.0, 0.02 if busy else 0.01)),
        wander=float(rng.choice([0.0, rng.uniform(0.002, 0.03 if busy else 0.01)])),
        wander_s=float(np.exp(rng.uniform(np.log(10), np.log(600)))),
        hiccups_per_minute=float(rng.choice([0.0, per_minute])),
        hiccup_s=float(lost * 60 / per_minute),
    )


def cache_flags(profile: Profile, *, capacity_tokens: float, longest_tokens: int, slots: int) -> dict[str, str]:
    """Flags of both arms: memory for this many bf16 tokens, the longest request, and the batch's slots."""
    model = profile.model
    return {
        "kv-cache-memory-bytes": str(int(capacity_tokens * 4 * model.layers * model.kv_heads * model.head_dim)),
        "max-model-len": str(longest_tokens),
        "max-num-seqs": str(slots),
    }
