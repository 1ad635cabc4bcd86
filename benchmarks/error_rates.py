"""How often the verdict is wrong, measured: false alarms between equals, and power for true effects.

    python benchmarks/error_rates.py            # half a minute

The bare statistics, on made-up blocks. `truth.py` judges whole experiments of engines whose truth is planted.

Part 1 feeds `stats.ratio` with blocks whose log values have a spread of 8 %, in the order A B B A A B ..., under three
kinds of noise: independent, with a drift of 1 % per block, and AR(1) with 0.5 from block to block. Part 2 adds
the floor: blocks of ten noisy parts. Part 3 holds the throughput ratio of a short stage of a stepped
continuous-batching engine, by steady window and by makespan, against that of 3,000 requests. Seeded: same numbers each
time.
"""

import math
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fakes import synthetic
from fakes.batching import Noise, Stage
from fakes.synthetic import Arm, lengths, saturated

from loadgen.analysis import stats
from loadgen.analysis.windows import stage_data
from loadgen.quantities import QUANTITIES
from loadgen.records import Slo

SPREAD = 0.08
RUNS = 2000
REPEATS = (2, 3, 4, 5, 6, 8)
KINDS = ("independent", "drift 1 %/block", "AR(1) 0.5")

Values = NDArray[np.float64]


def noise(rng: np.random.Generator, kind: str, blocks: int) -> Values:
    """Log values of `blocks` blocks in order of time."""
    white = rng.standard_normal(blocks) * SPREAD
    if kind == "drift 1 %/block":
        return white + 0.01 * np.arange(blocks)
    if kind == "AR(1) 0.5":
        values = [white[0]]
        for step in white[1:]:
            values.append(0.5 * values[-1] + math.sqrt(1 - 0.5**2) * step)
        return np.array(values)
    return white


def decided(repeats: int, kind: str, effect: float, seed: int) -> tuple[float, float]:
    """(share of runs whose interval excludes 1, median half-width as a ratio - 1)."""
    rng = np.random.default_rng(seed)
    arms = np.array(synthetic.mirrored(2, repeats))
    count, halves = 0, []
    for _ in range(RUNS):
        values = np.exp(noise(rng, kind, 2 * repeats) + math.log(effect) * arms)
        found = stats.ratio(values[arms == 0].tolist(), values[arms == 1].tolist())
        count += found.decided
        halves.append((found.estimate.hi or math.nan) / (found.estimate.center or math.nan) - 1)
    return count / RUNS, float(np.median(halves))


def floored(repeats: int, between: float, within: float, seed: int) -> tuple[float, float]:
    """False alarms without and with the floor, where a block is ten parts of spread `within`."""
    rng = np.random.default_rng(seed)
    bare = guarded = 0
    for _ in range(RUNS):
        blocks = between * rng.standard_normal((2, repeats, 1))
        parts = np.exp(blocks + within * rng.standard_normal((2, repeats, 10)) + rng.standard_normal(10))
        values = np.exp(np.log(parts).mean(axis=2)).tolist()
        bare += stats.ratio(values[0], values[1]).decided
        guarded += stats.ratio(values[0], values[1], stats.within_blocks(parts.tolist())).decided
    return bare / RUNS, guarded / RUNS


def throughput_bias(
    requests: int, prompt: tuple[int, int], output: tuple[int, int], seeds: int = 10, concurrency: int = 32
) -> dict[str, tuple[float, float]]:
    """Relative error of the throughput ratio of a short stage, (mean, standard deviation), by definition."""
    arms = (synthetic.BF16, synthetic.FP8)
    errors: dict[str, list[float]] = {"steady window": [], "makespan": []}
    truth = _ratios(arms, saturated(lengths(3000, prompt, output), concurrency), seed=0)["makespan"]
    for seed in range(seeds):
        found = _ratios(arms, saturated(lengths(requests, prompt, output, seed=seed), concurrency), seed)
        for name, value in found.items():
            errors[name].append(value / truth - 1)
    return {name: (float(np.mean(found)), float(np.std(found))) for name, found in errors.items()}


def _ratios(arms: tuple[Arm, ...], stage: Stage, seed: int) -> dict[str, float]:
    run = synthetic.experiment(arms, (stage,), repeats=1, seed=seed, noise=Noise(block=0))
    views = [stage_data(block, stage.spec, Slo(), steady=True) for block in run.blocks]
    rates = [QUANTITIES["output_tokens_per_s"].extract(one.view) or math.nan for one in views if one is not None]
    times = [QUANTITIES["makespan_s"].extract(one.view) or math.nan for one in views if one is not None]
    return {"steady window": rates[1] / rates[0], "makespan": times[0] / times[1]}


def main() -> None:
    """Prints the three tables."""
    print(f"1. Intervals over blocks, spread {SPREAD:.0%}, {RUNS} runs each; se of 5 % is {100 * se(0.05, RUNS):.1f} %")
    print(f"{'noise':18}{'R':>3}{'false alarms':>14}{'power 1.36x':>13}{'power 1.10x':>13}{'half-width':>12}")
    for kind in KINDS:
        for repeats in REPEATS:
            alarm, half = decided(repeats, kind, 1.0, seed=repeats)
            strong, _ = decided(repeats, kind, 1.36, seed=100 + repeats)
            weak, _ = decided(repeats, kind, 1.10, seed=200 + repeats)
            print(f"{kind:18}{repeats:>3}{alarm:>13.1%}{strong:>13.2f}{weak:>13.2f}{half:>11.0%}")
    print("\n2. The floor by the spread within blocks (ten parts): false alarms without and with it")
    for between, within in ((0.08, 0.05), (0.03, 0.1), (0.0, 0.1)):
        for repeats in (2, 4):
            bare, guarded = floored(repeats, between, within, seed=repeats)
            print(f"between {between:.0%}, within {within:.0%}, R {repeats}: {bare:.1%} {guarded:.1%}")
    print("\n3. Error of the saturated throughput ratio (concurrency 32) against 3,000 requests: mean, sd over plans")
    varied = ((64, 256), (64, 256))
    for requests, prompt, output in ((100, *varied), (200, *varied), (400, *varied), (100, (128, 128), (256, 256))):
        found = throughput_bias(requests, prompt, output)
        print(
            f"{requests} requests, {prompt} in, {output} out: "
            + "; ".join(f"{name} {m:+.1%}, {s:.1%}" for name, (m, s) in found.items())
        )


def se(rate: float, runs: int) -> float:
    """Standard error of a rate counted over independent runs."""
    return math.sqrt(rate * (1 - rate) / runs)


if __name__ == "__main__":
    main()
