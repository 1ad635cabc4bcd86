"""When requests are due: the whole schedule, computed before the first byte is sent. Pure.

Rate r per second, coefficient of variation c of the gaps:

    gap ~ Gamma(shape 1/c^2, scale c^2/r)      mean 1/r, standard deviation c/r
    due[0] = 0, due[i] = gap[0] + ... + gap[i-1]

c = 0 is even spacing, c = 1 is Poisson, c > 1 is bursty. The n gaps are scaled so that their sum is n/r: the n requests
take up n/r seconds exactly, and the rate is the one that was asked for, not a draw around it. For c = 1 this is a
Poisson process given its number of arrivals (normalised exponential gaps are the spacings of uniform order
statistics); for other c it is the gamma renewal process conditioned in the same way, whose measured c is a little
below the one asked for when n is small.

Traffic that comes and goes is the same process, run on the time that is left when silences are cut out of it: periods
with traffic and silences take turns, the lengths of each kind exponential, scaled so that their shares are exact.
"""

import math

import numpy as np


def scheduled(count: int, *, rate_per_s: float, cv: float, rng: np.random.Generator) -> list[float]:
    """`count` due times in seconds from the stage's start, in order, rounded to the microsecond.

    The first is 0 and all lie below count / rate_per_s.
    """
    if count == 0:
        return []
    gaps = np.ones(count)
    if cv > 0:
        drawn = rng.standard_gamma(1 / cv**2, count)
        # With a tiny shape every draw can underflow to zero: then one burst is what was asked for.
        gaps = drawn / drawn.mean() if drawn.any() else np.append(np.zeros(count - 1), count)
    starts = np.concatenate(([0.0], np.cumsum(gaps[:-1]))) / rate_per_s
    return [round(float(start), 6) for start in starts]


def count_within(duratiactive_s: float, *, rate_per_s: float) -> int:
    """How many requests a rate gives in a duration; at least one."""
    return max(1, math.floor(duratiactive_s * rate_per_s + 1e-9))


def bursts(
    count: int, *, rate_per_s: float, cv: float, active_s: float, silent_s: float, rng: np.random.Generator
) -> list[float]:
    """As `scheduled`, but nothing comes in silences of `silent_s` on average between periods of `active_s` on average.

    The mean rate over all of the count / rate_per_s seconds is `rate_per_s`; they begin with traffic.
    """
    total_s = count / rate_per_s
    share = active_s / (active_s + silent_s)
    periods = max(1, round(total_s / (active_s + silent_s)))
    traffic, silence = (rng.exponential(1, periods) for _ in range(2))
    ends = np.cumsum(traffic) / traffic.sum() * total_s * share
    silences = np.concatenate(([0.0], np.cumsum(silence) / silence.sum() * total_s * (1 - share)))
    active = np.array(scheduled(count, rate_per_s=rate_per_s / share, cv=cv, rng=rng))
    return [round(float(at_s), 6) for at_s in active + silences[np.searchsorted(ends[:-1], active, side="right")]]
