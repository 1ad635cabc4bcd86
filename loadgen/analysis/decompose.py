"""Where the quantized format gains and where it loses: lines through one stream's decode and prefill."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.analysis import lines, stats
from loadgen.analysis.lines import Crossing, Fit, Values
from loadgen.analysis.study import Study
from loadgen.analysis.windows import contexts, several_per_event, tokens_per_event
from loadgen.records import Decomposition, Estimate, Line, Sample

PREFILL_SPREAD = 1.5
QUADRATIC_SPREAD = 4.0
QUADRATIC_LENGTHS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """The decomposition for the report, the crossing that it came from, and p of the intercepts' difference."""

    decomposition: Decomposition
    crossing: Crossing
    p: float | None
    low: float
    high: float


def gaps_by_context(samples: Sequence[Sample]) -> tuple[Values, Values]:
    """(context, gap) of every gap: the context is the prompt and the tokens that were there before the gap."""
    x, y = [], []
    for sample in samples:
        if len(sample.events_s) < 2:
            continue
        prompt = sample.planned_prompt_tokens if sample.prompt_tokens is None else sample.prompt_tokens
        y.append(np.diff(np.asarray(sample.events_s)))
        x.append(prompt + np.arange(1, len(sample.events_s)) * tokens_per_event(sample))
    return (np.concatenate(x), np.concatenate(y)) if x else (np.empty(0), np.empty(0))


def decompose(study: Study) -> Decode | None:
    """gap(context) = intercept + slope x context for base and test; None without one stream on both arms."""
    spec = study.stage("one_stream")
    if spec is None or study.test is None:
        return None
    fits = {arm: _fits(study, spec.name, arm) for arm in (study.base, study.test)}
    if not all(fits.values()):
        return None
    points = {arm: _pooled(study, spec.name, arm) for arm in fits}
    low, high = (float(end([end(x) for x, _ in points.values()])) for end in (np.min, np.max))
    base, test = fits[study.base], fits[study.test]
    crossing = lines.crossing(base, test, low, high, start_spread=study.start_spread)
    decoded = traffic_contexts(study)
    dearer = stats.difference(
        [fit.intercept for fit in base], [fit.intercept for fit in test], start_spread=study.start_spread
    )
    slopes = stats.known([fit.slope for fit in base]), stats.known([fit.slope for fit in test])
    decomposition = Decomposition(
        stage=spec.name,
        base=_line(study.base, base, *points[study.base]),
        test=_line(study.test, test, *points[study.test]),
        intercept_difference_s=dearer.estimate,
        slope_ratio=_slope_ratio(*slopes, start_spread=study.start_spread),
        break_even_tokens=crossing.root,
        break_even=sentence(study.test, crossing, low, high),
        share_above=share_above(crossing, decoded),
        warnings=_warnings(study, spec.name),
    )
    return Decode(decomposition=decomposition, crossing=crossing, p=dearer.p, low=low, high=high)


def _fits(study: Study, stage: str, arm: str) -> tuple[Fit, ...]:
    found = (lines.robust_line(*gaps_by_context(one.ok)) for one in study.of(stage, arm))
    return tuple(fit for fit in found if fit is not None)


def _pooled(study: Study, stage: str, arm: str) -> tuple[Values, Values]:
    pairs = [gaps_by_context(one.ok) for one in study.of(stage, arm)]
    return np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs])


def _line(arm: str, fits: Sequence[Fit], x: Values, y: Values) -> Line:
    points = lines.binned(x, y)
    return Line(
        arm=arm,
        intercept_s=stats.mean([fit.intercept for fit in fits]),
        slope_s_per_token=stats.mean([fit.slope for fit in fits]),
        contexts=tuple(points.x.tolist()),
        gaps_s=tuple(points.median.tolist()),
        gaps_lo_s=tuple(points.lower.tolist()),
        gaps_hi_s=tuple(points.upper.tolist()),
    )


def _slope_ratio(base: Sequence[float], test: Sequence[float], *, start_spread: float) -> Estimate:
    """test's slope / base's; a ratio needs slopes above zero in every block."""
    if min(*base, *test) <= 0:
        warning = "a block's slope is not above zero: the cache's cost does not stand out of the noise"
        return Estimate(center=None, n=min(len(base), len(test)), warnings=(warning,))
    return stats.ratio(base, test, start_spread=start_spread).estimate


def _warnings(study: Study, stage: str) -> tuple[str, ...]:
    arms = [arm for arm in (study.base, study.test or "") if any(several_per_event(d.ok) for d in study.of(stage, arm))]
    return tuple(f"{arm}: several tokens came in one event: gaps are between events, not tokens" for arm in arms)


def traffic_contexts(study: Study) -> Values:
    """The contexts at which this traffic's tokens are decoded: of the saturated stage, else open loop, else one stream.

    One block of the base arm stands for all: every block does the same work. A grid is nobody's traffic.
    """
    spec = study.stage("saturated", "open_loop", "one_stream")
    if spec is None or spec.context_tokens is not None:
        return np.empty(0)
    held = study.of(spec.name, study.base)
    return contexts(held[0].ok) if held else np.empty(0)


def share_above(crossing: Crossing, decoded: Values) -> float | None:
    """The share of decoded tokens whose context lies above the break-even; None if that is not determined."""
    root = crossing.root
    if root.center is None or root.lo is None or len(decoded) == 0 or crossing.sign_lo == crossing.sign_hi != 0:
        return None  # not determined, or one line is above the other wherever contexts were measured
    return float((decoded > root.center).mean())


def sentence(test: str, crossing: Crossing, low: float, high: float) -> str:
    """The break-even in words, with the contexts that were measured."""
    measured = f"within the {low:,.0f} to {high:,.0f} tokens measured"
    ends = (crossing.sign_lo, crossing.sign_hi)
    if ends == (-1, -1):
        return f"always: {test} decodes faster at every context {measured}"
    if ends == (1, 1):
        return f"never {measured}: {test} decodes slower throughout{_beyond(crossing, high)}"
    root = crossing.root
    if root.center is None or root.lo is None or root.hi is None or root.hi <= 0:
        return f"not determined: the two lines are not told apart {measured}"
    if root.center <= 0 and crossing.slope_sign < 0:
        return (
            f"{test} decodes faster at every context {measured} by the fitted lines; a break-even of up to "
            f"{root.hi:,.0f} tokens is not excluded"
        )
    side = "above" if crossing.slope_sign < 0 else "below"
    where = f"{root.center:,.0f} tokens of context (between {max(root.lo, 0):,.0f} and {root.hi:,.0f})"
    outside = "" if low <= root.center <= high else ", an extrapolation: only " + measured.removeprefix("within the ")
    return f"{test} decodes faster {side} {where}{outside}"


def _beyond(crossing: Crossing, high: float) -> str:
    root = crossing.root
    if crossing.slope_sign >= 0 or root.center is None or root.lo is None or root.hi is None or root.center <= high:
        return ""
    return f"; its line would cross at {root.center:,.0f} tokens (between {root.lo:,.0f} and {root.hi:,.0f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """What a prompt token costs before the first output token, in one stream.

    `slopes`: TTFT per prompt token by arm. `ratio`: of the slopes; where prompts are all of one length, of the median
    TTFT (`how` says which); `p`: of the ratio. `quadratic`: s per token^2 by arm, where the lengths spread enough,
    else empty.
    """

    slopes: dict[str, Estimate]
    ratio: Estimate
    p: float | None
    how: str
    quadratic: dict[str, Estimate]


def prefill(study: Study) -> Prefill | None:
    """TTFT against prompt length, both arms; None without one stream on both."""
    spec = study.stage("one_stream")
    if spec is None or study.test is None:
        return None
    points = {arm: [_prompts(one.ok) for one in study.of(spec.name, arm) if one.ok] for arm in (study.base, study.test)}
    if not all(points.values()):
        return None
    slopes = {arm: [_prefill_slope(x, y) for x, y in blocks] for arm, blocks in points.items()}
    known = [slope for arm in slopes.values() for slope in arm if slope is not None]
    if len(known) < sum(len(arm) for arm in slopes.values()) or min(known) <= 0:
        medians = {arm: [float(np.median(y)) for _, y in blocks] for arm, blocks in points.items()}
        lengths = np.concatenate([x for x, _ in points[study.base]])
        how = f"median TTFT at {float(np.median(lengths)):,.0f} prompt tokens"
        ratio = stats.ratio(medians[study.base], medians[study.test], start_spread=study.start_spread)
        return Prefill(slopes={}, ratio=ratio.estimate, p=ratio.p, how=how, quadratic={})
    ratio = stats.ratio(slopes[study.base], slopes[study.test], start_spread=study.start_spread)
    return Prefill(
        slopes={arm: stats.mean(found) for arm, found in slopes.items()},
        ratio=ratio.estimate,
        p=ratio.p,
        how="TTFT per prompt token",
        quadratic={arm: stats.mean([_quadratic(x, y) for x, y in blocks]) for arm, blocks in points.items()}
        if all(_bends(x) for blocks in points.values() for x, _ in blocks)
        else {},
    )


def _prompts(samples: Sequence[Sample]) -> tuple[Values, Values]:
    """(prompt tokens that had to be computed, TTFT) of each request."""
    x = [
        (s.planned_prompt_tokens if s.prompt_tokens is None else s.prompt_tokens) - (s.cached_tokens or 0)
        for s in samples
    ]
    return np.array(x, dtype=np.float64), np.array([s.ttft_s for s in samples], dtype=np.float64)


def _prefill_slope(x: Values, y: Values) -> float | None:
    """Theil-Sen over requests, pairs weighted by their distance; None where lengths spread less than 1.5-fold."""
    if len(x) < 2 or x.min() <= 0 or x.max() / x.min() < PREFILL_SPREAD:
        return None
    first, second = np.triu_indices(len(x), k=1)
    run = x[second] - x[first]
    apart = run != 0
    return lines.weighted_median((y[second] - y[first])[apart] / run[apart], np.abs(run[apart]))


def _bends(x: Values) -> bool:
    return len(np.unique(x)) >= QUADRATIC_LENGTHS and x.min() > 0 and x.max() / x.min() >= QUADRATIC_SPREAD


def _quadratic(x: Values, y: Values) -> float:
    """The coefficient of the square in a least-squares parabola of TTFT on prompt length."""
    return float(np.polynomial.Polynomial.fit(x, y, 2).convert().coef[2])
