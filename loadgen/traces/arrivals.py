"""How a trace's requests arrive: gaps, bins, coarse clocks. Pure.

CV of gaps: 1 for a Poisson process. Index of dispersion (variance / mean of the counts in bins of one width): 1 for a
Poisson process at any width; a larger one at a larger width says that the rate itself changes.
"""

import msgspec
import numpy as np

from loadgen.traces.columns import Floats
from loadgen.traces.reuse import Ints

PEAK_S = 10.0


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """Rates and burstiness; None where there are too few rows to say.

    `gap_cv`, `dispersion_1s`, `dispersion_10s`: of the times as they stand. `spread_`: with each request at a random
    instant of its clock's step, where that is coarse: what an exact clock would have shown. `peak_ratio`: the fullest
    10 s against the mean; `idle_ratio`: the share of 10 s bins without any.
    """

    rate_per_s: float | None
    gap_cv: float | None
    dispersion_1s: float | None
    dispersion_10s: float | None
    peak_ratio: float | None
    idle_ratio: float | None
    time_quantum_s: float | None = None
    spread_gap_cv: float | None = None
    spread_dispersion_1s: float | None = None
    spread_dispersion_10s: float | None = None


def arrivals(at_s: Floats, time_quantum_s: float | None, seed: int) -> Arrivals:
    """Of times in order, from 0. `seed`: of the random instants within a step."""
    span_s = float(at_s[-1])
    counts, bins = _counts(at_s, PEAK_S)
    found = Arrivals(
        rate_per_s=len(at_s) / span_s if span_s else None,
        gap_cv=gap_cv(at_s),
        dispersion_1s=dispersion(at_s, 1.0),
        dispersion_10s=dispersion(at_s, 10.0),
        peak_ratio=float(counts.max() / (len(at_s) * PEAK_S / span_s)) if span_s >= PEAK_S else None,
        idle_ratio=1 - len(counts) / bins if span_s >= PEAK_S else None,
        time_quantum_s=time_quantum_s,
    )
    if time_quantum_s is None:
        return found
    exact_s = spread(at_s, time_quantum_s, seed)
    return msgspec.structs.replace(
        found,
        spread_gap_cv=gap_cv(exact_s),
        spread_dispersion_1s=dispersion(exact_s, 1.0),
        spread_dispersion_10s=dispersion(exact_s, 10.0),
    )


def spread(at_s: Floats, time_quantum_s: float, seed: int) -> Floats:
    """Each instant somewhere in the step that begins there, in order."""
    return np.sort(at_s + time_quantum_s * np.random.default_rng(seed).random(len(at_s)))


def gap_cv(at_s: Floats) -> float | None:
    """Standard deviation of the gaps divided by their mean; None of fewer than two gaps, or no time."""
    gaps = np.diff(at_s)
    return float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.any() else None


def dispersion(at_s: Floats, width_s: float) -> float | None:
    """Variance divided by mean of the counts in bins of `width_s`; None of fewer than ten bins."""
    counts, bins = _counts(at_s, width_s)
    mean = len(at_s) / bins
    return float((counts.astype(np.float64) ** 2).sum() / bins / mean - mean) if bins >= 10 else None


def _counts(at_s: Floats, width_s: float) -> tuple[Ints, int]:
    """Requests in those bins of `width_s` from 0 on that have any, and how many bins there are."""
    place = (at_s // width_s).astype(np.int64)
    return np.unique(place, return_counts=True)[1], int(place[-1]) + 1
