"""Causes.

Engines with none, one or several causes planted, at 4 to 6 blocks per arm (4 is what a scenario takes if it says
nothing), one case in five without restarts. *Found*: the report says that a cause holds; *denied*: that it does not;
*left open*: cannot tell, or not observable, which counts as not found. Each cause should be found in at least 95 % of
the cases in which it matters, and in at most 5 % of those without it. Slight: planted, but too small to matter;
nothing is asked there.

What is true of a case follows from its coefficients and from blocks without noise, never from the analysis:

* backend: planted where the test arm's kernel does not read the cache in place (a cached token costs more than in the
  base arm) or is another one. It matters if one stream's ITL or TTFT (medians) or saturated throughput is at least 2
  % worse than the base's, and reading in place by the base's kernel makes one of them at least 5 % better.
* conversion: planted where a step, a stored token or a prefilled token costs extra. It matters if taking that away
  makes one of the same three at least 5 % better. Where another kernel ran, two arms cannot tell its own cost from
  conversion's: inseparable, whatever is planted.
* short context: planted where a cached token costs less, and most of the traffic's tokens are decoded at a context
  below the break-even of the coefficients. It matters if a one-stream step at the traffic's median context takes at
  least 2 % longer than the base's (5 % where servers stay up: their blocks cannot show less than what starts differ
  by), and the break-even is a context that the model takes.
* unused memory: (mean batch test / base - 1) / (capacity test / base - 1) is the share of the freed memory that
  became work. It matters below 10 %, it is absent above 50 %, and slight between.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loadgen.emulator.arm import Emulated, emulated
from loadgen.emulator.cost import StepCost, break_even_tokens
from loadgen.emulator.profile import Profile
from planted import machines
from planted.traffic import Traffic, mean_context_tokens, traffic
from planted.trial import Plain, Trial, decoded_contexts, plain, run

Rng = np.random.Generator
CAUSES = ("backend", "conversion", "short context", "unused memory")
SALT = 3
MATERIAL = 0.05
LOSS = 0.02
LOSS_UP = 0.05  # servers that stay up
IDLE, USED = 0.1, 0.5
OTHER_BACKEND = "TRITON_ATTN"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A comparison with its counterfactuals: the test arm without the kernel's fault, and without conversion."""

    trial: Trial
    in_place: Emulated
    unconverted: Emulated
    kernel: str = ""  # "", "unfused", "other"
    unused: str = ""  # "", "slots", "demand"


def case(seed: int, number: int) -> Case:
    """Each cause in about a third of the cases, on its own and together with others."""
    rng = np.random.default_rng((seed, SALT, number))
    kind = machines.KINDS[number % 3]
    kernel = str(rng.choice(["", "unfused", "other"], p=[0.65, 0.2, 0.15]))
    unused = str(rng.choice(["", "slots", "demand"], p=[0.6, 0.2, 0.2]))
    made = _traffic(rng, kind, filling=unused != "demand")
    plan = made.plan()
    profile = machines.profile(rng, kind)
    flags = _memory(rng, profile, made, unused)
    base = emulated(profile, {"kv-cache-dtype": "bfloat16", **flags})
    clean = emulated(profile, {"kv-cache-dtype": "fp8", **flags})
    other = emulated(_read_by(profile, OTHER_BACKEND), {"kv-cache-dtype": "fp8", **flags})
    extra = _conversion(rng, base.cost, clean.cost, float(np.median(decoded_contexts(plan.stages[1]))))
    faults = _kernel(rng, kernel, base.cost, clean.cost)
    test = replace(other if kernel == "other" else clean, cost=replace(clean.cost, **extra, **faults))
    trial = Trial(
        plan=plan,
        base=base,
        test=test,
        noise=machines.noise(rng, kind),
        repeats=int(rng.integers(4, 7)),
        restart=str(rng.choice(["never", "each-block"], p=[0.2, 0.8])),
        drift=float(rng.choice([0.0, rng.uniform(-0.02, 0.05)])),
    )
    return Case(
        trial=trial,
        in_place=replace(clean, cost=replace(clean.cost, **extra)),
        unconverted=replace(clean, cost=replace(clean.cost, **faults)),
        kernel=kernel,
        unused=unused,
    )


def _read_by(profile: Profile, backend: str) -> Profile:
    content = profile.model_dump()
    content["formats"]["fp8"]["backend"] = backend
    return Profile.model_validate(content)


def _traffic(rng: Rng, kind: str, *, filling: bool) -> Traffic:
    """`filling`: contexts and streams that can fill a cache which also holds the longest prompt of the sweep."""
    made = traffic(rng, kind, str(rng.choice(["long", "mixed"])) if filling else None)
    streams = int(rng.choice([16, 24, 32]))
    return replace(
        made,
        concurrency=max(made.concurrency, streams) if filling else made.concurrency,
        waves=3.0,
        streams=16,
        decoded=48,
    )


def _memory(rng: Rng, profile: Profile, made: Traffic, unused: str) -> dict[str, str]:
    """Flags of both arms: a cache too small for the load; slots that bind before it; a load that never fills it."""
    wanted = made.concurrency * mean_context_tokens(made.plan())
    longest = made.longest_tokens + 2 * profile.scheduler.block_tokens
    share = rng.uniform(1.1, 4.0) if unused == "demand" else rng.uniform(0.3, 0.7)
    capacity = max(share * wanted, longest + 3 * profile.scheduler.block_tokens)
    slots = 256
    if unused == "slots":
        slots = max(2, int(capacity / mean_context_tokens(made.plan()) * rng.uniform(0.3, 0.7)))
    return machines.cache_flags(profile, capacity_tokens=capacity, longest_tokens=longest, slots=slots)


def _conversion(rng: Rng, base: StepCost, clean: StepCost, context: float) -> dict[str, float]:
    """Extra seconds: of a step (1 to 30 % of it), of each stored or prefilled token (3 to 100 % of a token's compute).

    In half of the cases none. In the others one to three terms, or a cost per step that puts the break-even at 1.3 to 5
    times the traffic's median context, but takes at least 2 % of a step.
    """
    kind = str(rng.choice(["none", "terms", "short"], p=[0.5, 0.25, 0.25]))
    if kind == "none":
        return {}
    gained = base.slope_s_per_token - clean.slope_s_per_token
    if kind == "short":
        least_s = base.intercept_s * _between(rng, 0.02, 0.15)
        return {"conversion_step_s": max(least_s, gained * context * _between(rng, 1.3, 5.0))}
    draws = {
        "conversion_step_s": base.intercept_s * _between(rng, 0.01, 0.3),
        "conversion_stored_s": base.token_s * _between(rng, 0.03, 1.0),
        "conversion_prefill_s": base.token_s * _between(rng, 0.03, 1.0),
    }
    kept = rng.permutation(list(draws))[: int(rng.integers(1, 4))]
    return {name: draws[name] for name in kept}


def _kernel(rng: Rng, kernel: str, base: StepCost, clean: StepCost) -> dict[str, float]:
    """A cached token costs 1.15 to 3 times the base's; with another kernel 0.7 to 2.5 times, a step up to 15 % more."""
    if not kernel:
        return {}
    cost = rng.uniform(1.15, 3.0) if kernel == "unfused" else rng.uniform(0.7, 2.5)
    found = {"read_penalty": float(cost * base.slope_s_per_token / clean.slope_s_per_token)}
    if kernel == "other":
        found["fixed_s"] = base.fixed_s + base.intercept_s * float(rng.choice([0.0, rng.uniform(0.01, 0.15)]))
    return found


def _between(rng: Rng, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def truths(made: Case) -> dict[str, str]:
    """matters, slight, absent or inseparable, by cause (see the head of this file)."""
    trial = made.trial
    base, test = plain(trial.plan, trial.base), plain(trial.plan, trial.test)
    return {
        "backend": _backend(made, base, test),
        "conversion": _converted(made, test),
        "short context": _short(trial),
        "unused memory": _unused(trial, base, test),
    }


def _gain(better: Plain, than: Plain) -> float:
    """By how much the best of the three figures is better; 0.05 = 5 % less time, or more tokens."""
    return max(
        1 - better.itl_s / than.itl_s, 1 - better.ttft_s / than.ttft_s, better.tokens_per_s / than.tokens_per_s - 1
    )


def _backend(made: Case, base: Plain, test: Plain) -> str:
    if not made.kernel:
        return "absent"
    lost = _gain(base, test) >= LOSS
    return "matters" if lost and _gain(plain(made.trial.plan, made.in_place), test) >= MATERIAL else "slight"


def _converted(made: Case, test: Plain) -> str:
    if made.kernel == "other":
        return "inseparable"
    if made.trial.test.cost == made.unconverted.cost:
        return "absent"
    return "matters" if _gain(plain(made.trial.plan, made.unconverted), test) >= MATERIAL else "slight"


def _short(trial: Trial) -> str:
    base, test = trial.base.cost, trial.test.cost
    contexts = decoded_contexts(trial.plan.stages[1])
    crossing = break_even_tokens(base, test)
    if crossing is None or test.slope_s_per_token >= base.slope_s_per_token or (contexts > crossing).mean() >= 0.5:
        return "absent"
    middle = float(np.median(contexts))
    before, after = (cost.intercept_s + cost.slope_s_per_token * middle for cost in (base, test))
    least = LOSS_UP if trial.restart == "never" else LOSS
    within = crossing <= trial.base.profile.model.max_model_len
    return "matters" if within and after / before - 1 >= least else "slight"


def _unused(trial: Trial, base: Plain, test: Plain) -> str:
    freed = trial.test.capacity_tokens / trial.base.capacity_tokens - 1
    share = (test.running / base.running - 1) / freed
    if share < IDLE:
        return "matters"
    return "absent" if share > USED else "slight"


def outcome(seed: int, number: int) -> dict[str, Any]:
    """Truth and verdict of each cause."""
    made = case(seed, number)
    report = run(made.trial, seed * 1_000_003 + number)
    return {
        "truth": truths(made),
        "found": {one.cause: one.verdict for one in report.findings},
        "kind": machines.KINDS[number % 3],
        "number": number,
    }
