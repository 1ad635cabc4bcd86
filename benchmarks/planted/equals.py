"""Equals (A/A).

Two arms that are the same engine, so that every difference that is claimed is a false one. Machines near an H100, an
A100 and a CPU (each coefficient up to 1.5 times lower or higher); 4 to 64 streams, enough or too few batch slots,
memory for 0.4 to 4 times the load; short, chat, long and mixed lengths; one stream, a closed loop, and in half of the
cases an open loop at 30 to 90 % of capacity. Step noise of 0.5 to 10 %, starts with a spread of up to 2 %, slow
wandering, drift of -5 to +10 % over the experiment, hiccups that take up to 1 % of the time; 2 to 8 blocks per arm;
servers restarted before each block, or, in four cases of ten, never. At most 5 % of the rows of a quantity may claim
a difference, and at most 5 % of the experiments may have a headline that does.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from loadgen.emulator.arm import Emulated, emulated
from loadgen.records import Slo
from planted import machines
from planted.traffic import Traffic, mean_context_tokens, traffic
from planted.trial import Trial, plain, run

Rng = np.random.Generator
SALT = 1


def setting(rng: Rng, kind: machines.Kind) -> tuple[Traffic, Emulated]:
    """Traffic and a base engine for it: few or many slots, tight or ample memory, half of them with an open loop."""
    made = traffic(rng, kind)
    plan = made.plan()
    wanted = made.concurrency * mean_context_tokens(plan)
    memory = float(rng.choice([rng.uniform(0.4, 0.9), rng.uniform(1.2, 4.0)]))
    made = replace(made, sweep=(made.sweep[0], int(np.clip(memory * wanted - 200, 512, made.sweep[1]))))
    arm = engine(rng, machines.profile(rng, kind), made, memory * wanted)
    if rng.random() < 0.5:
        plan = made.plan()
        per_request = plain(plan, arm).tokens_per_s / np.mean([r.output_tokens for r in plan.stages[1].requests])
        made = replace(made, rate_per_s=float(per_request * rng.uniform(0.3, 0.9)), arrivals=int(rng.integers(40, 120)))
    return made, arm


def engine(rng: Rng, profile: machines.Profile, made: Traffic, capacity_tokens: float) -> Emulated:
    """The bf16 arm with about this capacity; in three of ten cases it has fewer slots than the client has streams."""
    longest = made.longest_tokens + 2 * profile.scheduler.block_tokens
    capacity = max(capacity_tokens, longest + made.concurrency * profile.scheduler.block_tokens)
    slots = max(2, int(made.concurrency * rng.uniform(0.3, 0.9))) if rng.random() < 0.3 else 256
    flags = machines.cache_flags(profile, capacity_tokens=capacity, longest_tokens=longest, slots=slots)
    return emulated(profile, {"kv-cache-dtype": "bfloat16", **flags})


def case(seed: int, number: int) -> Trial:
    """One A/A comparison, at 2 to 8 blocks per arm; in four of ten the servers stay up."""
    rng = np.random.default_rng((seed, SALT, number))
    kind = machines.KINDS[number % 3]
    made, arm = setting(rng, kind)
    return Trial(
        plan=made.plan(),
        base=arm,
        test=replace(arm, kv_dtype=str(rng.choice(["bfloat16", "fp8"]))),
        noise=machines.noise(rng, kind),
        repeats=2 + number % 7,
        restart=str(rng.choice(["never", "each-block"], p=[0.4, 0.6])),
        drift=float(rng.choice([0.0, rng.uniform(-0.05, 0.1)])),
        slo=slo(made, arm),
    )


def slo(made: Traffic, arm: Emulated) -> Slo:
    """Bounds that some requests meet and some do not."""
    found = plain(made.plan(), arm)
    return Slo(ttft_s=4 * found.ttft_s, tpot_s=2 * found.itl_s)


def outcome(seed: int, number: int) -> dict[str, Any]:
    """Every row's verdict, and the headlines'."""
    trial = case(seed, number)
    report = run(trial, seed * 1_000_003 + number)
    rows = [
        (one.stage, one.quantity, one.verdict in ("better", "worse"))
        for one in report.differences
        if one.verdict != "cannot tell"
    ]
    claims = [one.verdict in ("pays", "does not pay", "trade-off") for one in report.headlines]
    return {"rows": rows, "claims": claims, "traits": traits(trial, number)}


def traits(trial: Trial, number: int) -> dict[str, str]:
    """What a comparison is like, for tables by kind."""
    noise = trial.noise
    return {
        "machine": machines.KINDS[number % 3],
        "blocks per arm": str(trial.repeats),
        "restart": trial.restart,
        "drift": "drift" if trial.drift else "none",
        "wandering": "wanders" if noise.wander else "none",
        "hiccups": "hiccups" if noise.hiccups_per_minute else "none",
    }
