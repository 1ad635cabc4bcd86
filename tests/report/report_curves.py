"""Curves of plausible shape for the report written by hand."""

import math
import random

from loadgen.records import Curve


def _time_curves(arm: str, block: int, draw: random.Random) -> list[Curve]:
    small = arm == "bf16"
    length, ceiling = (39.0, 16.5) if small else (29.0, 31.8)
    x = tuple(round(length * i / 59, 2) for i in range(60))
    ramp = [min(1.0, t / 3) * min(1.0, max(0.0, (length - t) / 5)) for t in x]
    running = [round(max(0.0, r * ceiling + draw.uniform(-1.4, 1.2)), 1) for r in ramp]
    waiting = [round(max(0.0, (r * (32 - ceiling)) + draw.uniform(-1, 1)), 1) for r in ramp]
    usage = [round(min(0.998, 0.06 * draw.random() + 0.95 * r), 4) for r in ramp]
    total = 30 if small else 12
    preempted = [float(round(total * min(1.0, t / (length - 6)))) for t in x]
    series = {"kv_usage_ratio": usage, "running": running, "waiting": waiting, "preemptions": preempted}
    return [
        Curve(quantity=name, kind="time", stage="full", arm=arm, block=block, x=x, y=tuple(y))
        for name, y in series.items()
    ]


def _quantile_curves(arm: str, stage: str) -> list[Curve]:
    q = (*(round(i / 50, 3) for i in range(50)), 0.99, 0.995, 0.999)
    scale = {
        ("bf16", "one"): (0.0692, 0.0094),
        ("fp8", "one"): (0.0901, 0.0091),
        ("bf16", "full"): (7.12, 0.0241),
        ("fp8", "full"): (1.04, 0.0352),
    }[arm, stage]

    def spread(center: float, width: float) -> tuple[float, ...]:
        return tuple(center * math.exp(width * math.log((p + 0.01) / (1.01 - p))) for p in q)

    return [
        Curve(quantity="ttft", kind="quantile", stage=stage, arm=arm, block=-1, x=q, y=spread(scale[0], 0.28)),
        Curve(quantity="itl", kind="quantile", stage=stage, arm=arm, block=-1, x=q, y=spread(scale[1], 0.13)),
    ]


def curves(order: tuple[str, ...]) -> tuple[Curve, ...]:
    """Server gauges of every block, and the distributions of each stage and arm."""
    draw = random.Random(3)
    drawn = [curve for block, arm in enumerate(order) for curve in _time_curves(arm, block, draw)]
    for stage in ("one", "full"):
        for arm in ("bf16", "fp8"):
            drawn += _quantile_curves(arm, stage)
    return tuple(drawn)
