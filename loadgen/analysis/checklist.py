"""What a comparison must have to be trusted: five lines, each passed, failed or not observable, with its figure."""

from collections.abc import Sequence

import numpy as np

from loadgen.analysis import stats
from loadgen.analysis.case import Case
from loadgen.analysis.causes.memory import Memory, memory
from loadgen.analysis.study import Study
from loadgen.analysis.wording import listed, many
from loadgen.quantities import QUANTITIES
from loadgen.records import Check, Finding, Sample

CONSTANT_SPREAD = 1.2


def checklist(case: Case, findings: Sequence[Finding]) -> tuple[Check, ...]:
    """The five lines, in a fixed order."""
    return (
        _backend(case),
        _lengths(case.study),
        _both_stages(case),
        _together(case.study),
        _scheduled(case, findings),
    )


def _backend(case: Case) -> Check:
    """Confirmed means read from a log or an endpoint, in every block's facts."""
    seen = {arm: case.backends(arm) for arm in (case.base, case.test)}
    ways = {b.how for found in seen.values() for b in found}
    confirmed = all(seen.values()) and ways <= {"log", "endpoint"}
    figure = "; ".join(
        f"{arm} {', '.join(f'{b.name} ({b.how})' for b in found) or 'unknown'}" for arm, found in seen.items()
    )
    return Check(name="attention backend confirmed in both runs", passed=True if confirmed else None, figure=figure)


def _lengths(study: Study) -> Check:
    """Lengths that vary may be real; lengths that do not cannot be."""
    spec = study.stage("saturated", "open_loop", "one_stream")
    samples = [s for one in study.of(spec.name, study.base)[:1] for s in one.samples] if spec is not None else []
    if not samples:
        return Check(name="real length distribution", passed=None, figure="no request was sent")
    sides = {"in": [s.planned_prompt_tokens for s in samples], "out": [_output(s) for s in samples]}
    figures = []
    varied = False
    for side, lengths in sides.items():
        low, mid, high = (float(v) for v in np.quantile(lengths, (0.1, 0.5, 0.9)))
        varied = varied or high > CONSTANT_SPREAD * low
        figures.append(f"{side} p10 {low:,.0f}, p50 {mid:,.0f}, p90 {high:,.0f} tokens")
    rest = (
        "whether they are those of your traffic only you can say" if varied else "constant lengths are no real traffic"
    )
    return Check(name="real length distribution", passed=varied, figure=f"{'; '.join(figures)}; {rest}")


def _output(sample: Sample) -> int:
    return sample.planned_output_tokens if sample.output_tokens is None else sample.output_tokens


def _both_stages(case: Case) -> Check:
    """Both roles measured on both arms, and the saturated stage saturated: the cache full, or a queue."""
    name = "one stream and saturation both measured"
    study = case.study
    stages = {role: study.stage(role) for role in ("one_stream", "saturated")}
    missing = [
        role.replace("_", " ")
        for role, spec in stages.items()
        if spec is None or not all(any(d.ok for d in study.of(spec.name, arm)) for arm in (case.base, case.test))
    ]
    if missing or stages["saturated"] is None:
        return Check(name=name, passed=False, figure=f"not measured on both arms: {listed(missing)}")
    used = memory(case, case.base, stages["saturated"])
    if used is None:
        return Check(name=name, passed=None, figure="both measured; whether the server was full it does not tell")
    return Check(name=name, passed=_full(used), figure=f"{used.arm} at saturation: {used.told()}")


def _full(used: Memory) -> bool:
    return used.binding or used.queueing


def _together(study: Study) -> Check:
    """TTFT, ITL and throughput side by side, in every stage of both arms."""
    name = "TTFT, ITL and throughput together"
    wanted = ("ttft_p50_s", "itl_p50_s", "output_tokens_per_s")
    missing = [
        f"{QUANTITIES[quantity].label} of {spec.name} on {arm}"
        for spec in study.stages
        for arm in (study.base, study.test or "")
        for quantity in wanted
        if not stats.known(study.values(quantity, spec.name, arm))
    ]
    if missing:
        return Check(name=name, passed=False, figure=f"missing: {listed(missing)}")
    blocks = {arm: len(study.blocks[arm]) for arm in (study.base, study.test or "")}
    figure = f"all three in {many(len(study.stages), 'stage')}; " + ", ".join(
        f"{arm} {many(count, 'block')}" for arm, count in blocks.items()
    )
    return Check(name=name, passed=True, figure=figure)


def _scheduled(case: Case, findings: Sequence[Finding]) -> Check:
    name = "freed blocks became scheduled work"
    found = next(finding for finding in findings if finding.cause == "unused memory")
    if found.verdict in ("cannot tell", "not observable"):
        return Check(name=name, passed=None, figure=found.claim)
    nothing_freed = found.claim.startswith("No memory was freed")
    return Check(name=name, passed=found.verdict == "does not hold" and not nothing_freed, figure=found.claim)
