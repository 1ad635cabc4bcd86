"""Cause 2: quantizing and converting cost more time per step or per prompt token than is won."""

from loadgen.analysis import stats
from loadgen.analysis.case import Case, changed_backend
from loadgen.analysis.wording import span, times
from loadgen.quantities import text
from loadgen.records import Estimate, Figure, Finding

NEGLIGIBLE_RATIO = 0.05
STEP = "Longer contexts and fuller batches spread a step's fixed cost."
PREFILL = (
    "Traffic with short prompts and long answers pays less of it; a kernel that takes this format without converting, "
    "where the engine has one for this device, would pay none (vLLM: --attention-backend)."
)


def conversion(case: Case) -> Finding:
    """Holds: a decode step at no context, or prefill, shows dearer; does not hold: neither can be 5 % dearer.

    Both are looked at, so that each must hold with the other in view (Holm). Where another kernel ran as well, a cost
    that is seen may be the kernel's.
    """
    if case.same_format is not None:
        return _nothing(case)
    if case.decode is None and case.prefill is None:
        return Finding(
            cause="conversion",
            verdict="not observable",
            claim="No one-stream stage on both arms can be used: conversion cannot be told from queueing.",
            advice=case.missing_stage("`concurrency: 1`"),
        )
    step, prompt = _step(case), None if case.prefill is None else case.prefill.ratio
    figures = _figures(case)
    dearer = _dearer(case, step, prompt)
    if dearer:
        return _shown(case, figures, dearer)
    cheap = (step is None or _below(step.hi, NEGLIGIBLE_RATIO * _gap_s(case))) and (
        prompt is None or _below(prompt.hi, 1 + NEGLIGIBLE_RATIO)
    )
    if cheap:
        return Finding(
            cause="conversion",
            verdict="does not hold",
            claim=f"Neither a decode step nor prefill costs {case.test} {NEGLIGIBLE_RATIO:.0%} more than {case.base}.",
            evidence=figures,
        )
    return Finding(
        cause="conversion",
        verdict="cannot tell",
        claim="A cost of conversion is neither shown, of a step and of prefill together, nor kept below "
        f"{NEGLIGIBLE_RATIO:.0%} by their intervals.",
        evidence=figures,
        advice="More blocks, or more one-stream requests per block, narrow it.",
    )


def _dearer(case: Case, step: Estimate | None, prompt: Estimate | None) -> dict[str, str]:
    """What is shown dearer, by what would help."""
    held = stats.holm([one.p if one is not None else None for one in (case.decode, case.prefill)])
    clauses = {STEP: _step_clause(case, step), PREFILL: _prefill_clause(case, prompt)}
    return {advice: clause for (advice, clause), holds in zip(clauses.items(), held, strict=True) if clause and holds}


def _shown(case: Case, figures: tuple[Figure, ...], dearer: dict[str, str]) -> Finding:
    claim = " and ".join(dearer.values())
    claim = f"{claim[0].upper()}{claim[1:]}"
    change = changed_backend(case)
    if change:
        return Finding(
            cause="conversion",
            verdict="cannot tell",
            claim=f"{claim}; but the kernel changed too ({change}): which of the two it is, two arms do not tell.",
            evidence=figures,
            advice="See backend: a third arm separates them.",
        )
    return Finding(cause="conversion", verdict="holds", claim=f"{claim}.", evidence=figures, advice=" ".join(dearer))


def _nothing(case: Case) -> Finding:
    claim = f"Both caches hold {case.same_format}: nothing is converted."
    return Finding(cause="conversion", verdict="does not hold", claim=claim)


def _below(value: float | None, bound: float) -> bool:
    return value is not None and value < bound


def _step(case: Case) -> Estimate | None:
    return None if case.decode is None else case.decode.decomposition.intercept_difference_s


def _gap_s(case: Case) -> float:
    """The base arm's usual gap in one stream."""
    gaps = case.decode.decomposition.base.gaps_s if case.decode is not None else ()
    return sorted(gaps)[len(gaps) // 2] if gaps else 0.0


def _step_clause(case: Case, step: Estimate | None) -> str:
    if step is None or case.decode is None or step.lo is None or step.lo <= 0:
        return ""
    made = case.decode.decomposition
    from_s, to_s = text(made.base.intercept_s.center, "s"), text(made.test.intercept_s.center, "s")
    return f"a decode step costs {case.test} {span(step, 's')} more before any context is read ({from_s} to {to_s})"


def _prefill_clause(case: Case, prompt: Estimate | None) -> str:
    if prompt is None or case.prefill is None or prompt.lo is None or prompt.lo <= 1:
        return ""
    return f"prefill costs {case.test} {times(prompt)} the time ({case.prefill.how})"


def _figures(case: Case) -> tuple[Figure, ...]:
    figures = []
    if case.decode is not None:
        made = case.decode.decomposition
        for line in (made.base, made.test):
            value = f"{span(line.intercept_s, 's')} + {span(line.slope_s_per_token, 's_per_token')} of context"
            figures.append(Figure(label=f"{line.arm}'s decode step", value=value, source="one-stream fit"))
        step = span(made.intercept_difference_s, "s")
        figures.append(Figure(label="step at no context, test - base", value=step, source="one-stream fit"))
    if case.prefill is not None:
        for arm, slope in case.prefill.slopes.items():
            value = span(slope, "s_per_token")
            figures.append(Figure(label=f"{arm}'s prefill", value=value, source="TTFT against prompt length"))
        for arm, square in case.prefill.quadratic.items():
            if square.center is not None:
                value = f"{square.center:.3g} s/token²"
                figures.append(Figure(label=f"{arm}'s prefill, quadratic", value=value, source="parabola through TTFT"))
        ratio = times(case.prefill.ratio)
        figures.append(Figure(label="prefill, test / base", value=ratio, source=case.prefill.how))
    return tuple(figures)
