"""Intervals over blocks: callers get a center, an interval, a count and warnings; the assumptions stay in here.

Assumed throughout: the unit of repetition is the block; blocks of one arm are independent draws, and all arms
share one relative spread (pooled variance, as in the two-sample t test). `benchmarks/error_rates.py` measures
what the intervals are worth when blocks drift or remember each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from loadgen.records import Estimate

CONFIDENCE = 0.95
POWER = 0.8
MOST_BLOCKS = 50
FEWEST_BLOCKS = 2
START_SPREAD = 0.01  # of the logarithm, between two starts of one engine; allowed where blocks cannot show it
CERTAIN_DOF = 1e6

Values = NDArray[np.float64]


def t_quantile(share: float, dof: float) -> float:
    """Student's t quantile."""
    return float(stdtrit(dof, share))


def _two_sided(dof: float, confidence: float = CONFIDENCE) -> float:
    return t_quantile(0.5 + confidence / 2, dof)


def known(values: Sequence[float | None]) -> list[float]:
    """The values that are known and finite."""
    return [value for value in values if value is not None and math.isfinite(value)]


def _gaps(values: Sequence[float | None], kept: Sequence[float]) -> tuple[str, ...]:
    lost = len(values) - len(kept)
    return (f"not known in {lost} of {len(values)} blocks",) if lost and kept else ()


def _too_few(count: int) -> tuple[str, ...]:
    return () if count >= FEWEST_BLOCKS else (f"{count} block: an interval needs at least {FEWEST_BLOCKS}",)


def mean(values: Sequence[float | None]) -> Estimate:
    """Arithmetic mean over blocks with its t interval (n - 1 degrees of freedom); unknown values are left out."""
    kept = known(values)
    if not kept:
        return Estimate(center=None, n=0, warnings=("not known",))
    center = float(np.mean(kept))
    warnings = _gaps(values, kept) + _too_few(len(kept))
    if len(kept) < FEWEST_BLOCKS:
        return Estimate(center=center, n=len(kept), warnings=warnings)
    half = _two_sided(len(kept) - 1) * float(np.std(kept, ddof=1)) / math.sqrt(len(kept))
    return Estimate(center=center, lo=center - half, hi=center + half, n=len(kept), warnings=warnings)


def geometric_mean(values: Sequence[float | None]) -> Estimate:
    """Geometric mean over blocks with its interval, t on the logs; falls back to `mean` where a value is not positive.

    The ratio of two of these is the center of `ratio`.
    """
    kept = known(values)
    if not kept or min(kept) <= 0:
        return mean(values)
    logs = mean([math.log(value) for value in kept])
    return Estimate(
        center=_exp(logs.center),
        lo=_exp(logs.lo),
        hi=_exp(logs.hi),
        n=logs.n,
        warnings=_gaps(values, kept) + _too_few(len(kept)),
    )


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(min(value, 700.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Test against base on one quantity: the estimate and what a decision needs.

    `p` is two-sided, None where no interval could be had. `detectable_ratio` is the effect that these blocks would
    have shown with 80 % probability, `blocks_needed` the blocks per arm that would show the effect seen, with
    80 % probability, if it is the truth (None beyond 50, or where the spread is not known).
    """

    estimate: Estimate
    p: float | None = None
    detectable_ratio: float | None = None
    blocks_needed: int | None = None

    @property
    def decided(self) -> bool:
        """Whether the interval excludes "no effect"."""
        return self.p is not None and self.p < 1 - self.estimate.confidence


def ratio(
    base: Sequence[float | None],
    test: Sequence[float | None],
    floor_variance: float = 0.0,
    *,
    start_spread: float = 0.0,
) -> Contrast:
    """test / base over blocks: t on the difference of mean logs, pooled variance, n1 + n2 - 2 degrees of freedom.

    log r = mean(log test) - mean(log base);  SE^2 = max(s^2, floor) (1/n1 + 1/n2) + 2 start^2;  r exp(+-t SE).
    `floor_variance` is the variance that one block's log value has from within the block (see `within_blocks`):
    a handful of blocks that agree by luck must not make the interval narrower than what one block can know.
    `start_spread`: of the log value between starts of one engine, where all blocks of an arm share one start, so that
    they cannot show it; degrees of freedom are then Satterthwaite's (1946).
    """
    base_known, test_known = known(base), known(test)
    if not base_known or not test_known:
        return Contrast(estimate=Estimate(center=None, n=0, warnings=("not known in both arms",)))
    if min(*base_known, *test_known) <= 0:
        return Contrast(estimate=Estimate(center=None, n=0, warnings=("a block's value is zero: no ratio",)))
    logs = [np.log(np.asarray(values, dtype=np.float64)) for values in (base_known, test_known)]
    delta = float(logs[1].mean() - logs[0].mean())
    counts = (len(base_known), len(test_known))
    warnings = tuple(dict.fromkeys(_gaps(base, base_known) + _gaps(test, test_known) + _too_few(min(counts))))
    if min(counts) < FEWEST_BLOCKS:
        return Contrast(estimate=Estimate(center=math.exp(delta), n=min(counts), warnings=warnings))
    variance = pooled_variance(logs)
    if floor_variance > variance:
        warnings += (
            "blocks agree more than one block can know itself: the interval is set by the spread within blocks",
        )
    spread = math.sqrt(max(variance, floor_variance))
    by_blocks, by_starts = spread * math.sqrt(1 / counts[0] + 1 / counts[1]), math.sqrt(2) * start_spread
    if by_starts > by_blocks:
        warnings += ("the interval is set by what two starts may differ by: a restart before each block narrows it",)
    error, dof = with_start(by_blocks, sum(counts) - 2, by_starts)
    half = _two_sided(dof) * error
    estimate = Estimate(
        center=math.exp(delta),
        lo=_exp(delta - half),
        hi=_exp(delta + half),
        n=min(counts),
        warnings=warnings,
    )
    p = p_value(delta, error, dof)
    decided = p < 1 - CONFIDENCE
    return Contrast(
        estimate=estimate,
        p=p,
        detectable_ratio=_exp((_two_sided(dof) + t_quantile(POWER, dof)) * error),
        blocks_needed=None
        if decided
        else blocks_needed(delta, spread, more_than=max(counts), start_spread=start_spread),
    )


def with_start(error: float, dof: float, start_error: float) -> tuple[float, float]:
    """(standard error, degrees of freedom) of a difference whose arms also differ by their one start each.

    Variances add; the start's is taken as known, so that dof = dof (total variance / block variance)^2.
    """
    total = math.hypot(error, start_error)
    if not start_error:
        return total, dof
    return total, min(CERTAIN_DOF, dof * (total / error) ** 4) if error else CERTAIN_DOF


def p_value(delta: float, error: float, dof: float) -> float:
    """Two-sided p of a difference with a t distributed error; without any spread, a difference is certain."""
    if error == 0:
        return 1.0 if delta == 0 else 0.0
    return float(2 * stdtr(dof, -abs(delta) / error))


def pooled_variance(groups: Sequence[Values]) -> float:
    """Variance within groups: sum of squares about each group's mean over the sum of (n - 1)."""
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    return squares / sum(len(group) - 1 for group in groups)


def blocks_needed(delta: float, spread: float, *, more_than: int = 1, start_spread: float = 0.0) -> int | None:
    """The least n per arm with (t_0.975 + t_0.8) SE(n) <= |delta|; None beyond 50 (see `ratio` for SE)."""
    for count in range(more_than + 1, MOST_BLOCKS + 1):
        error, dof = with_start(spread * math.sqrt(2 / count), 2 * count - 2, math.sqrt(2) * start_spread)
        if (_two_sided(dof) + t_quantile(POWER, dof)) * error <= abs(delta):
            return count
    return None


def difference(base: Sequence[float | None], test: Sequence[float | None], *, start_spread: float = 0.0) -> Contrast:
    """test - base over blocks, arithmetic, pooled variance and `start_spread` (of each arm's mean) as in `ratio`."""
    base_known, test_known = known(base), known(test)
    if not base_known or not test_known:
        return Contrast(estimate=Estimate(center=None, n=0, warnings=("not known in both arms",)))
    groups = [np.asarray(values, dtype=np.float64) for values in (base_known, test_known)]
    delta = float(groups[1].mean() - groups[0].mean())
    count = min(len(base_known), len(test_known))
    if count < FEWEST_BLOCKS:
        return Contrast(estimate=Estimate(center=delta, n=count, warnings=_too_few(count)))
    error, dof = with_start(
        math.sqrt(pooled_variance(groups) * (1 / len(base_known) + 1 / len(test_known))),
        len(base_known) + len(test_known) - 2,
        start_spread * math.hypot(*(float(group.mean()) for group in groups)),
    )
    half = _two_sided(dof) * error
    return Contrast(
        estimate=Estimate(center=delta, lo=delta - half, hi=delta + half, n=count), p=p_value(delta, error, dof)
    )


def within_blocks(arms: Sequence[Sequence[Sequence[float | None]]]) -> float:
    """The variance of one block's log value that comes from within the block; 0 where it cannot be had.

    `arms[a][b][k]`: value of part k of block b of arm a. All blocks do the same work, cut in the same way, so what
    differs between the parts of a block is no noise. Noise is what is left of the logs after the mean of the part
    over the arm's blocks and the mean of the block are taken off; a block's value averages its parts:
    sum of squares / ((R - 1)(K - 1)) / K.
    """
    squares, dof, parts = 0.0, 0, 0
    for blocks in arms:
        table = _complete_parts(blocks)
        if table.shape[0] < FEWEST_BLOCKS or table.shape[1] < 2:
            continue
        left = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
        squares += float((left**2).sum())
        dof += (table.shape[0] - 1) * (table.shape[1] - 1)
        parts = max(parts, table.shape[1])
    return squares / dof / parts if dof else 0.0


def _complete_parts(blocks: Sequence[Sequence[float | None]]) -> Values:
    """Logs of the parts that every block has with a positive value; shape (blocks, parts)."""
    parts = min((len(block) for block in blocks), default=0)
    columns = [
        [math.log(value) for value in column if value is not None and value > 0]
        for column in zip(*(block[:parts] for block in blocks), strict=True)
    ]
    whole = [column for column in columns if len(column) == len(blocks)]
    return np.asarray(whole, dtype=np.float64).T if whole else np.empty((0, 0))


def holm(p_values: Sequence[float | None], alpha: float = 1 - CONFIDENCE) -> tuple[bool, ...]:
    """Which of a family of tests hold together with at most `alpha` chance of any false one (Holm 1979).

    Sorted upwards, the i-th of m must be below alpha / (m - i); the first that is not stops the rest. Unknown p
    are no tests.
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    held = [False] * len(p_values)
    for rank, (p, place) in enumerate(order):
        if p >= alpha / (len(order) - rank):
            break
        held[place] = True
    return tuple(held)
