"""Cause 3: contexts too short for what is won per token of context to outweigh what each step costs more."""

from typing import Literal

from loadgen.analysis.case import Case
from loadgen.analysis.decompose import Decode, traffic_contexts
from loadgen.analysis.wording import digits, times
from loadgen.quantities import text
from loadgen.records import Figure, Finding

HALF = 0.5


def short_context(case: Case) -> Finding:
    """Holds: most of this traffic's tokens are decoded below the break-even, at whichever end of its interval."""
    if case.same_format is not None:
        claim = f"Both caches hold {case.same_format}: no context length makes a difference."
        return Finding(cause="short context", verdict="does not hold", claim=claim)
    if case.decode is None:
        return Finding(
            cause="short context",
            verdict="not observable",
            claim="No one-stream stage on both arms can be used: the break-even context is not known.",
            advice=case.missing_stage("`concurrency: 1` and prompts from short to long"),
        )
    figures = _figures(case, case.decode)
    ends = (case.decode.crossing.sign_lo, case.decode.crossing.sign_hi)
    slope = case.decode.crossing.slope_sign
    if ends == (-1, -1):
        claim = f"{case.test} decodes faster at every context measured{_outside(case, case.decode)}."
        return Finding(cause="short context", verdict="does not hold", claim=claim, evidence=figures)
    if slope > 0:
        return Finding(
            cause="short context",
            verdict="does not hold",
            claim=f"Longer contexts would not help: a token of context costs {case.test} more than {case.base}, so the "
            "cache is not read in place.",
            evidence=figures,
            advice="See backend: the kernel is to blame, not the traffic.",
        )
    if slope == 0:
        return Finding(
            cause="short context",
            verdict="cannot tell",
            claim="No gain per token of context is shown, so that a break-even is not determined.",
            evidence=figures,
            advice="More blocks, or one-stream prompts that spread further (the longest that the server takes).",
        )
    return _held(case, case.decode, figures)


def _outside(case: Case, decode: Decode) -> str:
    """What the fitted lines do not speak of: tokens of this traffic decoded at contexts that were not measured."""
    contexts = traffic_contexts(case.study)
    if not len(contexts):
        return ""
    share = float(((contexts < decode.low) | (contexts > decode.high)).mean())
    where = f" ({decode.low:,.0f} to {decode.high:,.0f} tokens)"
    return f"{where}; {text(share, 'ratio')} of this traffic's tokens lie outside" if share >= 0.005 else where


def _held(case: Case, decode: Decode, figures: tuple[Figure, ...]) -> Finding:
    """The slope is lower in the test arm: which side of the break-even is the traffic on?"""
    root = decode.crossing.root
    contexts = traffic_contexts(case.study)
    if not len(contexts):
        claim = "There is no traffic to hold against the break-even: a grid's map says where the format pays."
        return Finding(cause="short context", verdict="not observable", claim=claim, evidence=figures)
    if root.center is None or root.lo is None or root.hi is None:
        claim = "The break-even is not confined to an interval."
        return Finding(cause="short context", verdict="cannot tell", claim=claim, evidence=figures)
    most, share, least = (float((contexts > end).mean()) for end in (root.lo, root.center, root.hi))
    verdict: Literal["holds", "does not hold", "cannot tell"] = "cannot tell"
    if most < HALF or least >= HALF:
        verdict = "holds" if most < HALF else "does not hold"
    between = f"{text(least, 'ratio')} to {text(most, 'ratio')} over the interval"
    where = f"{max(root.center, 0):,.0f} tokens ({max(root.lo, 0):,.0f}–{max(root.hi, 0):,.0f})"
    return Finding(
        cause="short context",
        verdict=verdict,
        claim=f"{case.test} decodes one stream faster above a context of {where}; {text(share, 'ratio')} of "
        f"this traffic's tokens are decoded above it ({between}).",
        evidence=figures,
        advice="Traffic with longer contexts, or a lower cost per step (see conversion), would move it. In a batch the "
        "contexts of all its sequences add up, and a cost per step is shared."
        if verdict != "does not hold"
        else "",
    )


def _figures(case: Case, decode: Decode) -> tuple[Figure, ...]:
    contexts = traffic_contexts(case.study)
    made = decode.decomposition
    figures = [
        Figure(label="break-even", value=made.break_even, source="one-stream fit"),
        Figure(label="cost per token of context, test / base", value=times(made.slope_ratio), source="one-stream fit"),
    ]
    if len(contexts):
        quantiles = sorted(contexts.tolist())
        low, mid, high = (quantiles[int(share * (len(quantiles) - 1))] for share in (0.1, 0.5, 0.9))
        value = f"p10 {low:,.0f}, p50 {mid:,.0f}, p90 {high:,.0f} tokens"
        figures.append(Figure(label="contexts at which this traffic decodes", value=value, source="samples"))
    figures += _batch(case, contexts.mean() if len(contexts) else None)
    return tuple(figures)


def _batch(case: Case, context: float | None) -> list[Figure]:
    """All contexts that one step reads at saturation: what the cache's format works on there."""
    spec = case.study.stage("saturated")
    if spec is None or context is None:
        return []
    found = []
    for arm in (case.base, case.test):
        running = case.average("running_mean", spec.name, arm).center
        if running is None:
            continue
        value = f"{digits(running * context)} tokens"
        size = case.facts(arm).bytes_per_token
        if size is not None:
            value += f", {running * context * size / 2**20:,.0f} MiB of cache"
        source = "running x mean context"
        found.append(Figure(label=f"{arm}: contexts read by one saturated step", value=value, source=source))
    return found
