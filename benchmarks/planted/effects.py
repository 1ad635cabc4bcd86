"""True effects.

The same machines, traffic and noise, at 3 to 8 blocks per arm; every step of the test arm takes 2, 5, 10 or 30 %
longer, or shorter by the same factor. The true ratio of a quantity is that of one block per arm without noise; in an
open loop, where what a request finds depends on the noise before it, that of 16 blocks per arm with noise. 93 to 97 %
of all intervals should cover it. In an open loop the truth has an error of its own: an interval of five blocks that
is right in 95 % covers a mean of 16 blocks in 91 %.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from loadgen.emulator.arm import Emulated
from loadgen.emulator.cost import StepCost
from planted import equals, machines
from planted.trial import Trial, averaged_ratios, run, true_ratios

SALT = 2
EFFECTS = (0.02, 0.05, 0.10, 0.30)
UNTIMED = ("weight_bytes", "bytes_per_token", "residual_bytes_per_token", "read_penalty")


def scaled(arm: Emulated, factor: float) -> Emulated:
    """The engine with every step `factor` times as long."""
    cost = arm.cost
    times = {}
    for field in fields(StepCost):
        value = getattr(cost, field.name)
        if field.name.endswith("bandwidth_bytes_per_s"):
            times[field.name] = value / factor
        elif field.name not in UNTIMED:
            times[field.name] = value * factor
    return replace(arm, cost=replace(cost, **times))


def case(seed: int, number: int) -> tuple[Trial, float]:
    """(the comparison, the effect's size)."""
    rng = np.random.default_rng((seed, SALT, number))
    kind = machines.KINDS[number % 3]
    made, arm = equals.setting(rng, kind)
    size = EFFECTS[number // 3 % len(EFFECTS)]
    factor = float(rng.choice([1 + size, 1 / (1 + size)]))
    trial = Trial(
        plan=made.plan(),
        base=arm,
        test=replace(scaled(arm, factor), kv_dtype="fp8"),
        noise=machines.noise(rng, kind),
        repeats=int(rng.integers(3, 9)),
        restart=str(rng.choice(["never", "each-block"], p=[0.25, 0.75])),
        drift=float(rng.choice([0.0, rng.uniform(-0.05, 0.1)])),
        slo=equals.slo(made, arm),
    )
    return trial, size


def outcome(seed: int, number: int) -> dict[str, Any]:
    """Of every row: the truth without noise, the interval, and the verdict's side."""
    trial, size = case(seed, number)
    truth = true_ratios(trial.plan, trial.base, trial.test, trial.slo)
    for stage in trial.plan.stages:
        if stage.spec.role == "open_loop":
            truth.update(averaged_ratios(trial, stage, seed=10**9 + number))
    report = run(trial, seed * 1_000_003 + number)
    rows = []
    for one in report.differences:
        true, found = truth.get((one.stage, one.quantity)), one.ratio
        if one.verdict == "cannot tell" or true is None or found.lo is None or found.hi is None or found.center is None:
            continue
        decided = one.verdict in ("better", "worse")
        wrong = decided and (found.center > 1) != (true > 1)
        rows.append((one.stage, one.quantity, decided, wrong, found.lo <= true <= found.hi))
    return {"size": size, "rows": rows, "traits": equals.traits(trial, number)}
