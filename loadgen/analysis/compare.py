"""Test against base, quantity by quantity: a ratio with its interval, and a verdict or the reason for none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadgen.analysis import stats
from loadgen.analysis.study import Study
from loadgen.analysis.windows import SEVERAL, StageData, mean_per_event
from loadgen.analysis.wording import listed, many, times
from loadgen.analysis.work import Work
from loadgen.quantities import QUANTITIES, Quantity
from loadgen.records import Difference, Estimate, StageSpec, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A difference and its two-sided p; None where there is no verdict to be had."""

    difference: Difference
    p: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """Why the client may not speak about a stage; `quantities`: prefixes of the names concerned, () = all."""

    stage: str
    reason: str
    quantities: tuple[str, ...] = ()

    def concerns(self, stage: str, quantity: str) -> bool:
        """Whether a quantity of a stage is concerned."""
        return stage == self.stage and (not self.quantities or quantity.startswith(self.quantities))


def compare(study: Study, works: Mapping[str, Work], late: Sequence[Late]) -> tuple[Comparison, ...]:
    """Every quantity that can get better, of every stage, where both arms have a value."""
    if study.test is None:
        return ()
    return tuple(
        _compared(study, quantity, spec, works[spec.name], late)
        for spec in study.stages
        for quantity in QUANTITIES.values()
        if quantity.better is not None and _in_both(study, quantity, spec.name)
    )


def _in_both(study: Study, quantity: Quantity, stage: str) -> bool:
    return all(stats.known(study.values(quantity.name, stage, arm)) for arm in (study.base, study.test or ""))


def _compared(study: Study, quantity: Quantity, spec: StageSpec, work: Work, late: Sequence[Late]) -> Comparison:
    base = study.values(quantity.name, spec.name, study.base)
    test = study.values(quantity.name, spec.name, study.test or "")
    refused = "the work differs: " + "; ".join(work.differs) if work.differs else ""
    contrast = stats.ratio(base, test, floor_variance(study, quantity, spec.name), start_spread=study.start_spread)
    reasons = list(dict.fromkeys(one.reason for one in late if one.concerns(spec.name, quantity.name)))
    verdict, note = _verdict(quantity, contrast)
    if refused:
        verdict, note = "cannot tell", f"not compared: {refused}"
        contrast = stats.Contrast(estimate=Estimate(center=None, warnings=(refused,)))
    elif reasons:
        verdict, note = "cannot tell", f"cannot tell: the client was late: {listed(reasons)}"
    elif quantity.name.startswith("itl") and (unlike := unlike_events(study, spec.name)):
        verdict, note = "cannot tell", f"cannot tell: {unlike}"
    return Comparison(
        difference=Difference(
            quantity=quantity.name,
            stage=spec.name,
            base=stats.geometric_mean(base),
            test=stats.geometric_mean(test),
            ratio=contrast.estimate,
            verdict=verdict,
            detectable_ratio=contrast.detectable_ratio,
            blocks_needed=contrast.blocks_needed,
            note="; ".join(filter(None, (note, *work.notes))),
        ),
        p=None if verdict == "cannot tell" else contrast.p,
    )


def unlike_events(study: Study, stage: str) -> str:
    """Why gaps between events say nothing: the arms put different numbers of tokens into an event. Else empty."""
    test = study.test or ""
    base_tokens, test_tokens = (mean_per_event(study.of(stage, arm)) for arm in (study.base, test))
    if max(base_tokens, test_tokens) <= SEVERAL * min(base_tokens, test_tokens):
        return ""
    return (
        f"an event holds {base_tokens:.3g} tokens on {study.base} and {test_tokens:.3g} on {test}: gaps between events "
        "are not comparable; TPOT is per token"
    )


def floor_variance(study: Study, quantity: Quantity, stage: str) -> float:
    """The variance of a block's log value that comes from within blocks (see `stats.within_blocks`)."""
    arms = [study.of(stage, arm) for arm in (study.base, study.test or "")]
    return stats.within_blocks([[_parts(quantity, one) for one in held] for held in arms])


def _parts(quantity: Quantity, one: StageData) -> Sequence[float | None]:
    if quantity.group == "latency":
        return [quantity.extract(part) for part in one.parts]
    return one.part_durations_s


def _verdict(quantity: Quantity, contrast: stats.Contrast) -> tuple[Verdict, str]:
    estimate = contrast.estimate
    if estimate.center is None or contrast.p is None:
        return "cannot tell", "; ".join(estimate.warnings)
    if contrast.decided:
        return ("better" if (estimate.center > 1) == (quantity.better == "higher") else "worse"), ""
    return "no difference shown", undecided(contrast, estimate.n)


def undecided(contrast: stats.Contrast, blocks: int) -> str:
    """What these blocks could have shown, and how many would decide."""
    shown = f"{times(Estimate(center=contrast.detectable_ratio))} or its inverse"
    could = f"{many(blocks, 'block')} per arm would have shown {shown} (4 times in 5)"
    if contrast.blocks_needed is None:
        return f"{could}; an effect as small as the one seen is beyond {stats.MOST_BLOCKS} blocks per arm"
    return f"{could}; if the effect seen is the truth, {contrast.blocks_needed} blocks per arm would show it"
