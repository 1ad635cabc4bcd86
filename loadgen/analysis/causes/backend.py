"""Cause 1: another attention kernel ran, or one that does not make use of the smaller cache."""

import re

from loadgen.analysis.case import Case, backend_figure, changed_backend
from loadgen.analysis.wording import listed, times
from loadgen.records import Estimate, Figure, Finding

# Wordings of vLLM 0.5 to 0.33 (platforms/cuda.py, attention/selector.py, engine/arg_utils.py, flashinfer.py),
# SGLang (arg_groups/overrides.py) and llama.cpp (ggml-cuda/fattn.cu).
FALLBACKS = re.compile(
    r"cannot use flash\s?attention|falling back|precluded higher-priority|reduced performance|reverting this kv-cache"
    r"|xformers backend|setting attention backend to|converting k and v|overriding flash_attn_version",
    re.IGNORECASE,
)


def backend(case: Case) -> Finding:
    """Holds: a fallback was logged, the kernel changed and something got slower, or the same kernel reads worse.

    Does not hold: the same kernel, and a token of the smaller cache is shown to cost less.
    """
    figures = (backend_figure(case, case.base), backend_figure(case, case.test))
    lines = fallbacks(case)
    if lines:
        return _fallback(case, figures, lines)
    seen = {arm: case.backends(arm) for arm in (case.base, case.test)}
    blind = [arm for arm, found in seen.items() if not found or any(b.how == "unknown" for b in found)]
    if blind:
        return Finding(
            cause="backend",
            verdict="not observable",
            claim=f"Which attention backend {listed(blind)} ran on is not known: no endpoint tells it.",
            evidence=figures,
            advice="Give the server's log: " + " ".join(f"--log {arm}=FILE" for arm in blind) + ".",
        )
    change = changed_backend(case)
    return _changed(case, figures, change) if change else _same(case, figures)


def fallbacks(case: Case) -> tuple[str, ...]:
    """Lines in which the test arm's server owns to a slower way, and the base arm's does not."""
    base = {line for block in case.study.blocks[case.base] for line in block.facts.warnings}
    test = dict.fromkeys(line for block in case.study.blocks[case.test] for line in block.facts.warnings)
    return tuple(line for line in test if FALLBACKS.search(line) and line not in base)


def _fallback(case: Case, figures: tuple[Figure, ...], lines: tuple[str, ...]) -> Finding:
    return Finding(
        cause="backend",
        verdict="holds",
        claim=f"{case.test}'s server says that it took a slower way: {lines[0]}",
        evidence=(*figures, *(Figure(label="warning", value=line, source=f"{case.test}'s server") for line in lines)),
        advice=f"Choose a backend that reads this format (vLLM: --attention-backend), then compare again; {_pin(case)}",
    )


def _changed(case: Case, figures: tuple[Figure, ...], change: str) -> Finding:
    lost = losses(case)
    if lost:
        claim = (
            f"The attention backend changed with the format ({change}), and {listed([f.label for f in lost])} got worse"
        )
        claim += ": the loss is that of kernel and format together."
    else:
        claim = f"The attention backend changed with the format ({change}); nothing got slower, but what is shown is "
        claim += "the effect of kernel and format together."
    return Finding(
        cause="backend",
        verdict="holds" if lost else "cannot tell",
        claim=claim,
        evidence=(*figures, *lost),
        advice=_pin(case),
    )


def _pin(case: Case) -> str:
    ran = listed([b.name for b in case.backends(case.test)]) or f"{case.test}'s backend"
    return f"add a third arm, {case.base} pinned to {ran}: it separates the kernel from the format."


def losses(case: Case) -> tuple[Figure, ...]:
    """What got worse where a kernel, and not the size of the batch, speaks: one stream; throughput anywhere."""
    found = []
    for spec in case.study.stages:
        names = ("itl_p50_s", "ttft_p50_s") if spec.role == "one_stream" else ("output_tokens_per_s",)
        for name in names:
            one = case.difference(spec.name, name)
            if one is not None and one.verdict == "worse":
                label = {"itl_p50_s": "ITL p50", "ttft_p50_s": "TTFT p50"}.get(name, "output throughput")
                found.append(Figure(label=f"{label} ({spec.name})", value=times(one.ratio), source="comparison"))
    return tuple(found)


def _same(case: Case, figures: tuple[Figure, ...]) -> Finding:
    seen = case.backends(case.base)
    how = " (assumed, not read from a log)" if any(b.how == "assumed" for b in seen) else ""
    name = listed([b.name for b in seen]) + how
    ratio = None if case.decode is None else case.decode.decomposition.slope_ratio
    if ratio is not None:
        figures += (
            Figure(label="cost per token of context, test / base", value=times(ratio), source="one-stream fit"),
        )
    if ratio is not None and ratio.lo is not None and ratio.lo > 1 and case.same_format is None:
        return Finding(
            cause="backend",
            verdict="holds",
            claim=f"Both arms ran {name}, yet a token of context costs {case.test} {times(ratio)} what it costs "
            f"{case.base}: this kernel does not read the smaller cache faster.",
            evidence=figures,
            advice="Try another attention backend or a newer engine; a kernel that reads the format in place comes "
            "near the ratio of the bytes (0.5 for fp8).",
        )
    if case.same_format is None and (ratio is None or ratio.hi is None or ratio.hi >= 1):
        return _unread(case, figures, f"Both arms ran {name}, and no fallback was logged", ratio)
    ours = all(case.facts(arm).argv for arm in (case.base, case.test))
    advice = ""
    if how and ours:
        advice = "The whole log was read and names no backend; the engine's source says which one it takes here."
    elif how:
        advice = "Start the servers from loadgen or give their logs to have the backend confirmed."
    return Finding(
        cause="backend",
        verdict="does not hold",
        claim=f"Both arms ran {name}, and no fallback was logged.",
        evidence=figures,
        advice=advice,
    )


def _unread(case: Case, figures: tuple[Figure, ...], seen: str, ratio: Estimate | None) -> Finding:
    """One name is no proof: a kernel that converts before it reads may log the name of one that reads in place."""
    if ratio is None:
        why, advice = "there is no one stream to tell it by", case.missing_stage("`concurrency: 1` and long prompts")
    else:
        why = "the cost of a token of context does not stand out of the noise"
        if ratio.center is not None:
            why = f"a token of context costs {case.test} {times(ratio)} what it costs {case.base}"
        advice = "More blocks, or one-stream prompts that spread further (the longest that the server takes)."
    return Finding(
        cause="backend",
        verdict="cannot tell",
        claim=f"{seen}; whether the smaller cache is read faster is not shown: {why}.",
        evidence=figures,
        advice=advice,
    )
