"""How many tokens, how long a time: draws from a constant, a range or a table of quantiles. Pure.

A table is piecewise log-linear: between two given quantiles (p, v) and (q, w) the quantile u is
exp(log v + (log w - log v) (u - p) / (q - p)). Where no quantile at or below 1 % is given, the quantile 1 is taken as
half of the lowest given value; below the lowest one the distribution is flat. Lengths are whole and at least 1.

Draws are stratified: of n draws, each n-th slice of the distribution gives one, in shuffled order. Eight requests
then already cover a range, and the sum of a stage's tokens hardly depends on the seed.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from loadgen.workload.fields import Delays, Lengths, Quantiles, Range, Times

MEAN_LEVELS = 2_000


def draw(spec: Lengths, count: int, rng: np.random.Generator, at_most: int | None = None) -> NDArray[np.int64]:
    """`count` lengths. With `at_most` they come from the part of the distribution that lies at or below it."""
    levels = _levels(count, rng)
    share = share_within(spec, at_most)
    values = quantile(spec, levels * share)
    return values if at_most is None else np.minimum(values, at_most)


def draw_seconds(spec: Delays, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """`count` times in seconds."""
    if not isinstance(spec, Times):
        return np.full(count, spec, dtype=np.float64)
    percents, logs = _logs(_from_one(spec.quantiles, spec.quantiles[min(spec.quantiles)] / 2))
    seconds: NDArray[np.float64] = np.exp(np.interp(_levels(count, rng) * 100, percents, logs))
    return seconds


def _levels(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    levels: NDArray[np.float64] = (rng.permutation(count) + rng.random(count)) / max(count, 1)
    return levels


def mean(spec: Lengths, at_most: int | None = None) -> float:
    """The distribution's mean; with `at_most` that of the part which lies at or below it."""
    levels = (np.arange(MEAN_LEVELS) + 0.5) / MEAN_LEVELS
    return float(quantile(spec, levels * share_within(spec, at_most)).mean())


def quantile(spec: Lengths, levels: NDArray[np.float64]) -> NDArray[np.int64]:
    """The lengths at the given levels (0..1)."""
    if isinstance(spec, Range):
        low, high = spec.range
        return np.minimum(low + np.floor(levels * (high - low + 1)).astype(np.int64), high)
    if isinstance(spec, Quantiles):
        percents, logs = _table(spec)
        return np.maximum(np.rint(np.exp(np.interp(levels * 100, percents, logs))).astype(np.int64), 1)
    return np.full(len(levels), spec, dtype=np.int64)


def share_within(spec: Lengths, at_most: int | None) -> float:
    """The share (0..1) of the distribution that is at or below `at_most`; 1 without a bound."""
    if at_most is None or at_most >= longest(spec):
        return 1.0
    if at_most < shortest(spec):
        return 0.0
    if isinstance(spec, Range):
        low, high = spec.range
        return (at_most - low + 1) / (high - low + 1)
    if isinstance(spec, Quantiles):
        percents, logs = _table(spec)
        return float(np.interp(math.log(at_most + 0.5), logs, percents)) / 100
    return 1.0


def shortest(spec: Lengths) -> int:
    """The fewest tokens that a draw can give."""
    return int(quantile(spec, np.zeros(1))[0])


def longest(spec: Lengths) -> int:
    """The most tokens that a draw can give."""
    return int(quantile(spec, np.ones(1))[0])


def _table(spec: Quantiles) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return _logs(_from_one(spec.quantiles, max(1, round(spec.quantiles[min(spec.quantiles)] / 2))))


def _from_one(points: Mapping[float, float], half: float) -> dict[float, float]:
    """With the quantile 1, where nothing at or below it is given."""
    return dict(points) if min(points) <= 1 else {1.0: half, **points}


def _logs(points: Mapping[float, float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.array(list(points), dtype=float), np.log(np.array(list(points.values()), dtype=float))
