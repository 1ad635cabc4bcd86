"""How far steps, blocks and single moments stray from the fitted cost: a `noise.NoiseSpec` in the profile's keys."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadgen.emulator.fit_terms import Fitted, Group
from loadgen.emulator.profile import NoiseKeys

Values = NDArray[np.float64]

PAUSE = 6.0  # a step this many spreads too long was held up by something else
MOST = 4.0  # spreads at which a residual is cut before squares are taken
LEAST_HICCUP_S = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFound:
    """The keys, and what could not be known of them."""

    keys: NoiseKeys
    notes: tuple[str, ...]


def noise_of(groups: Sequence[Group], fitted: Fitted, *, restarts: bool) -> NoiseFound:
    """Spreads of steps and of blocks, and pauses. `restarts`: each block had an engine process of its own.

    A step's arrival that is late makes one step longer and the next shorter; that is no noise of the engine, and shows
    as a negative covariance of neighbours, which is taken off: variance = var(r) + 2 cov(r, next r).
    """
    logs = np.log(fitted.seconds / fitted.expected_s)
    parts = np.split(logs, np.cumsum([len(group.seen) for group in groups])[:-1])
    hiccup_s, per_minute = _pauses(fitted)
    between, known = _between_blocks(groups, parts, fitted.spread)
    notes = [] if known else ["noise between blocks: a stage of a format has one block; start and wander kept at 0"]
    if known and restarts:
        notes.append(
            "noise.start holds all that differs between blocks; wander cannot be told from it and is kept at 0"
        )
    elif known:
        notes.append("noise.wander holds all that differs between blocks; servers stayed up, so start is kept at 0")
    keys = NoiseKeys(
        step=_rounded(_of_steps(parts, fitted.spread)),
        start=_rounded(between if restarts else 0.0),
        wander=_rounded(0.0 if restarts else between),
        hiccups_per_minute=_rounded(per_minute),
        hiccup_s=_rounded(hiccup_s),
    )
    return NoiseFound(keys=keys, notes=tuple(notes))


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _of_steps(parts: Sequence[Values], spread: float) -> float:
    squares, neighbours, count = 0.0, 0.0, 0
    for part in parts:
        cut = np.clip(part - np.median(part), -MOST * spread, MOST * spread)
        squares += float((cut**2).sum())
        neighbours += float((cut[1:] * cut[:-1]).sum())
        count += len(cut)
    return math.sqrt(max(0.0, squares + 2 * min(0.0, neighbours)) / max(1, count))


def _pauses(fitted: Fitted) -> tuple[float, float]:
    """Mean length and rate: beyond a bound, an exponential's excess has the mean of the whole; time lost is kept."""
    excess = fitted.seconds - fitted.expected_s
    bound = PAUSE * fitted.spread * fitted.expected_s
    long = excess > bound
    if not long.any():
        return NoiseKeys().hiccup_s, 0.0
    hiccup_s = max(LEAST_HICCUP_S, float((excess - bound)[long].mean()))
    return hiccup_s, float(excess[long].sum()) / hiccup_s / float(fitted.seconds.sum()) * 60


def _between_blocks(groups: Sequence[Group], parts: Sequence[Values], spread: float) -> tuple[float, bool]:
    levels: dict[tuple[str, str], list[float]] = {}
    for group, part in zip(groups, parts, strict=True):
        cut = np.clip(part, -MOST * spread, MOST * spread)
        levels.setdefault((group.kv_dtype, group.stage), []).append(float(cut.mean()))
    if min(map(len, levels.values()), default=0) < 2:
        return 0.0, False
    return math.sqrt(float(np.mean([np.var(values, ddof=1) for values in levels.values()]))), True
