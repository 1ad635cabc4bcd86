"""Cause 2: quantizing and converting cost more time per step or per prompt token than is won."""

from loadgen.analysis.case import Case
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
    """Holds: a decode step at no context, or prefill, shows dearer; does not hold: neither can be 5 % dearer."""
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
    clauses = {STEP: _step_clause(case, step), PREFILL: _prefill_clause(case, prompt)}
    dearer = {advice: clause for advice, clause in clauses.items() if clause}
    if dearer:
        claim = " and ".join(dearer.values())
        return Finding(
            cause="conversion",
            verdict="holds",
            claim=f"{claim[0].upper()}{claim[1:]}.",
            evidence=figures,
            advice=" ".join(dearer),
        )
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
        claim="A cost of conversion is neither shown nor ruled out: its interval reaches from nothing to more than "
        f"{NEGLIGIBLE_RATIO:.0%}.",
        evidence=figures,
        advice="More blocks, or more one-stream requests per block, narrow it.",
    )


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
