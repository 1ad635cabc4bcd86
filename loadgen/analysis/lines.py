"""Robust straight lines, one per block, and where two arms' lines cross."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadgen.analysis import stats
from loadgen.records import Estimate

BINS = 40
FEWEST_POINTS = 8

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """y = intercept + slope x."""

    intercept: float
    slope: float

    def at(self, x: float) -> float:
        """The line's value."""
        return self.intercept + self.slope * x


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Points put into bins of equal count along x: their median x, and the quartiles of y."""

    x: Values
    median: Values
    lower: Values
    upper: Values


def binned(x: Values, y: Values, bins: int = BINS) -> Bins:
    """Splits points, sorted by x, into at most `bins` bins of (nearly) equal count."""
    order = np.argsort(x, kind="stable")
    groups = [group for group in np.array_split(order, min(bins, max(1, len(x) // 4))) if len(group)]
    quartiles = np.array([np.quantile(y[group], (0.25, 0.5, 0.75)) for group in groups]).reshape(-1, 3)
    return Bins(
        x=np.array([np.median(x[group]) for group in groups]),
        median=quartiles[:, 1],
        lower=quartiles[:, 0],
        upper=quartiles[:, 2],
    )


def robust_line(x: Values, y: Values) -> Fit | None:
    """Theil-Sen on the medians of bins, pairs weighted by their distance in x; None where x does not spread.

    Medians of bins ignore stalls; the weighted median of the slopes between bins (Theil 1950, Sen 1968; weights as
    in Jaeckel 1972) keeps pairs that stand close together from drowning those that tell the slope.
    """
    if len(x) < FEWEST_POINTS:
        return None
    points = binned(x, y)
    first, second = np.triu_indices(len(points.x), k=1)
    run = points.x[second] - points.x[first]
    apart = run > 0
    if not apart.any():
        return None
    slopes = (points.median[second] - points.median[first])[apart] / run[apart]
    slope = weighted_median(slopes, run[apart])
    return Fit(intercept=float(np.median(points.median - slope * points.x)), slope=slope)


def weighted_median(values: Values, weights: Values) -> float:
    """The value at which half of the weight is reached."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Where test's line meets base's. `root` has an interval only where the blocks confine it (see `crossing`).

    `sign_lo`, `sign_hi`: at the two ends of the measured range, -1 test is lower, 1 higher, 0 not shown.
    """

    root: Estimate
    slope_sign: int
    sign_lo: int
    sign_hi: int


def crossing(
    base: Sequence[Fit], test: Sequence[Fit], low: float, high: float, *, start_spread: float = 0.0
) -> Crossing:
    """The x at which the lines of the two arms meet, with its interval by Fieller's method over blocks.

    The difference at x, d(x) = mean test(x) - mean base(x), has a pooled t interval at every x. The interval of the
    crossing is the set of x at which d(x) is not told from zero (Fieller 1954): the blocks' intercepts and slopes
    go together as they were seen, no error propagation by derivative. Where the slopes' difference is not told
    from zero that set has no end, and there is no interval. `start_spread`: of a factor on each arm's whole line, where
    all its blocks share one start (see `stats.ratio`).
    """
    intercepts = [np.array([fit.intercept for fit in fits]) for fits in (base, test)]
    slopes = [np.array([fit.slope for fit in fits]) for fits in (base, test)]
    gap_a = float(intercepts[1].mean() - intercepts[0].mean())
    gap_b = float(slopes[1].mean() - slopes[0].mean())
    center = -gap_a / gap_b if gap_b != 0 else None
    if min(len(base), len(test)) < stats.FEWEST_BLOCKS:
        warning = f"an interval needs at least {stats.FEWEST_BLOCKS} blocks per arm"
        root = Estimate(center=center, n=min(len(base), len(test)), warnings=(warning,))
        return Crossing(root=root, slope_sign=0, sign_lo=0, sign_hi=0)
    ends = _fieller(gap_a, gap_b, _covariance(intercepts, slopes, start_spread))
    count = min(len(base), len(test))
    root = Estimate(center=center, n=count, warnings=("the lines do not part: no end to the interval",))
    if ends is not None:
        root = Estimate(center=center, lo=ends[0], hi=ends[1], n=count)
    return Crossing(
        root=root,
        slope_sign=_sign(stats.difference(slopes[0].tolist(), slopes[1].tolist(), start_spread=start_spread)),
        sign_lo=_sign(_difference_at(base, test, low, start_spread)),
        sign_hi=_sign(_difference_at(base, test, high, start_spread)),
    )


def _difference_at(base: Sequence[Fit], test: Sequence[Fit], x: float, start_spread: float) -> stats.Contrast:
    return stats.difference([fit.at(x) for fit in base], [fit.at(x) for fit in test], start_spread=start_spread)


def _sign(contrast: stats.Contrast) -> int:
    if not contrast.decided or contrast.estimate.center is None:
        return 0
    return int(math.copysign(1, contrast.estimate.center))


def _covariance(
    intercepts: Sequence[Values], slopes: Sequence[Values], start_spread: float
) -> tuple[float, float, float]:
    """t^2 x the variances and the covariance of the two differences of means, pooled over arms."""
    dof = sum(len(group) - 1 for group in intercepts)
    share = sum(1 / len(group) for group in intercepts) / dof
    t, sure = (stats.t_quantile(0.5 + stats.CONFIDENCE / 2, known) for known in (dof, stats.CERTAIN_DOF))

    def pooled(left: Sequence[Values], right: Sequence[Values]) -> float:
        products = (((u - u.mean()) * (v - v.mean())).sum() for u, v in zip(left, right, strict=True))
        started = start_spread**2 * sum(float(u.mean() * v.mean()) for u, v in zip(left, right, strict=True))
        return float(sum(products)) * share * t * t + started * sure * sure

    return pooled(intercepts, intercepts), pooled(slopes, slopes), pooled(intercepts, slopes)


def _fieller(a: float, b: float, spread: tuple[float, float, float]) -> tuple[float, float] | None:
    """The ends of {x: (a + b x)^2 <= t^2 var(a + b x)}; None where the set has no end."""
    var_a, var_b, cov = spread
    square, linear, constant = b * b - var_b, 2 * (a * b - cov), a * a - var_a
    if square <= 0:
        return None
    root = math.sqrt(max(linear * linear - 4 * square * constant, 0.0))
    return (-linear - root) / (2 * square), (-linear + root) / (2 * square)
