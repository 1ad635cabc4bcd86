"""Every quantity of every stage on every arm, over its blocks."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from loadgen.analysis import stats
from loadgen.analysis.study import Study
from loadgen.analysis.windows import several_per_event
from loadgen.quantities import QUANTITIES, Quantity
from loadgen.records import ArmReport, Estimate, QuantitySummary

TAIL_EVENTS = 10


def summaries(study: Study) -> tuple[QuantitySummary, ...]:
    """One row per stage, arm and quantity that has a value in at least one block."""
    return tuple(
        row
        for spec in study.stages
        for arm in study.labels
        for quantity in QUANTITIES.values()
        if (row := summary(study, quantity, spec.name, arm)).estimate.center is not None
    )


def summary(study: Study, quantity: Quantity, stage: str, arm: str) -> QuantitySummary:
    """What can get better is averaged geometrically, so that it agrees with the ratios; the rest arithmetically."""
    by_block = study.values(quantity.name, stage, arm)
    average = stats.mean if quantity.better is None else stats.geometric_mean
    return QuantitySummary(
        quantity=quantity.name,
        stage=stage,
        arm=arm,
        estimate=_with(_not_below_zero(average(by_block)), *_cautions(study, quantity, stage, arm)),
        by_block=by_block,
    )


def _not_below_zero(estimate: Estimate) -> Estimate:
    """Nothing that is measured here can be negative; a t interval of few blocks does not know that."""
    if estimate.lo is None or estimate.lo >= 0:
        return estimate
    return msgspec.structs.replace(estimate, lo=0.0)


def _with(estimate: Estimate, *warnings: str) -> Estimate:
    return msgspec.structs.replace(estimate, warnings=(*estimate.warnings, *warnings)) if warnings else estimate


def _cautions(study: Study, quantity: Quantity, stage: str, arm: str) -> Iterator[str]:
    """What a reader must know about the quantity itself."""
    data = study.of(stage, arm)
    latency, _, rest = quantity.name.rpartition("_p")
    share = rest.removesuffix("_s")
    if quantity.group == "latency" and share in ("90", "95", "99") and data:
        fewest = min(len(one.view.latencies.get(latency, ())) for one in data)
        beyond = fewest * (100 - int(share)) / 100
        if beyond < TAIL_EVENTS:
            yield f"only {beyond:.1f} of {fewest} values a block lie beyond p{share}"
    if quantity.name.startswith("itl") and any(several_per_event(one.ok) for one in data):
        yield "several tokens came in one event: gaps are between events, not tokens; TPOT is per token"


def arm_reports(study: Study) -> tuple[ArmReport, ...]:
    """What each arm was, and what became of its requests, over the blocks that count."""
    return tuple(
        ArmReport(
            name=arm,
            spec=study.spec(arm),
            facts=study.facts(arm),
            blocks=len(study.blocks[arm]),
            requests={spec.name: _fates(study, spec.name, arm) for spec in study.stages},
            failures=failures(study, arm),
        )
        for arm in study.labels
    )


def _fates(study: Study, stage: str, arm: str) -> tuple[int, int, int, int]:
    """planned, sent, ok, failed; from the marks, or from the samples where a stage was cut off before its mark."""
    total = [0, 0, 0, 0]
    for one in study.of(stage, arm):
        ok = sum(sample.ok for sample in one.samples)
        counts = (one.spec.planned, len(one.samples), ok, len(one.samples) - ok)
        if one.mark is not None:
            counts = (one.mark.planned, one.mark.sent, one.mark.ok, one.mark.failed)
        total = [a + b for a, b in zip(total, counts, strict=True)]
    return (total[0], total[1], total[2], total[3])


def failures(study: Study, arm: str, stage: str | None = None) -> dict[str, int]:
    """Failed requests by kind."""
    counts: dict[str, int] = {}
    for spec in study.stages:
        for one in study.of(spec.name, arm) if stage in (None, spec.name) else ():
            for sample in one.samples:
                if sample.failure is not None:
                    counts[sample.failure.kind] = counts.get(sample.failure.kind, 0) + 1
    return dict(sorted(counts.items()))


def commonest(study: Study, arm: str) -> str:
    """What failed requests said most often, as a clause: "; most often: HTTP 500: out of memory"; "" if nothing."""
    details = Counter(
        sample.failure.detail
        for spec in study.stages
        for one in study.of(spec.name, arm)
        for sample in one.samples
        if sample.failure is not None and sample.failure.detail
    )
    return f"; most often: {details.most_common(1)[0][0]}" if details else ""
