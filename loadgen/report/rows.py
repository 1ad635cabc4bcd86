"""The rows that text and HTML both show: differences by stage, facts side by side, notes under a table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from loadgen.quantities import QUANTITIES, text
from loadgen.records import ArmReport, Difference, Estimate, Report, ServerFacts, StageSpec, Verdict
from loadgen.report.words import bounds, how_sent, label, ratio_interval, ratio_text, unit, with_interval

_LATENCY = ("ttft_p50_s", "ttft_p99_s", "itl_p50_s", "itl_p99_s")
_SERVER = ("kv_usage_peak_ratio", "prefix_hit_ratio", "running_mean", "waiting_mean", "preemptions")
ESSENTIAL: dict[str, tuple[str, ...]] = {
    "one_stream": ("output_tokens_per_s", *_LATENCY),
    "saturated": ("output_tokens_per_s", "goodput_per_s", *_LATENCY, *_SERVER),
    "open_loop": ("requests_per_s", "goodput_per_s", "ttft_from_due_p50_s", "ttft_from_due_p99_s", *_LATENCY, *_SERVER),
}
_GROUPS = ("throughput", "latency", "server", "client")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One quantity of one stage, as written. `verdict` is None where no direction is better."""

    quantity: str
    label: str
    base: str
    test: str
    ratio: str
    verdict: Verdict | None
    difference: Difference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One fact of every arm, in the arms' order."""

    label: str
    values: tuple[str, ...]
    extra: str = ""

    @property
    def differs(self) -> bool:
        """True if the arms do not agree."""
        return len(set(self.values)) > 1


def _rank(quantity: str) -> tuple[int, int]:
    if quantity not in QUANTITIES:
        return len(_GROUPS), 0
    return _GROUPS.index(QUANTITIES[quantity].group), list(QUANTITIES).index(quantity)


def stage_rows(report: Report, stage: StageSpec, *, detail: bool = False) -> list[Row]:
    """The stage's quantities: throughput, latency, server, client. `detail` shows all, with intervals."""
    figures = {(s.arm, s.quantity): s.estimate for s in report.summaries if s.stage == stage.name}
    differences = {d.quantity: d for d in report.differences if d.stage == stage.name}
    names = sorted({quantity for _, quantity in figures} | set(differences), key=_rank)
    wanted = names if detail else [name for name in names if name in ESSENTIAL[stage.role]]
    return [_row(report, name, differences.get(name), figures, detail) for name in wanted]


def _row(
    report: Report,
    quantity: str,
    difference: Difference | None,
    figures: dict[tuple[str, str], Estimate],
    detail: bool,
) -> Row:
    def written(arm: str | None, compared: Estimate | None) -> str:
        found = compared or (figures.get((arm, quantity)) if arm is not None else None)
        if found is None:
            return ""
        return with_interval(found, unit(quantity)) if detail else text(found.center, unit(quantity))

    judged = quantity not in QUANTITIES or QUANTITIES[quantity].better is not None
    return Row(
        quantity=quantity,
        label=label(quantity),
        base=written(report.base, difference.base if difference else None),
        test=written(report.test, difference.test if difference else None),
        ratio=ratio_interval(difference.ratio) if difference else "",
        verdict=difference.verdict if difference and judged else None,
        difference=difference,
    )


def stages(report: Report) -> tuple[StageSpec, ...]:
    """The stages that are told one by one: those that are no cells of a grid."""
    return tuple(stage for stage in report.stages if stage.context_tokens is None)


def ratio_heading(shown: Sequence[Row]) -> str:
    """ "ratio (95 %)" where intervals are written, else "ratio"."""
    levels = {
        row.difference.ratio.confidence for row in shown if row.difference and row.difference.ratio.lo is not None
    }
    return f"ratio ({text(min(levels), 'ratio')})" if levels else "ratio"


def stage_requests(report: Report, stage: StageSpec) -> str:
    """ "256 + 256 requests, all ok" or, where some failed or were not sent, each arm's count."""
    counts = [(arm.name, arm.requests[stage.name]) for arm in report.arms if stage.name in arm.requests]
    if not counts:
        return "no requests"
    if all(planned == ok for _, (planned, _, ok, _) in counts):
        return " + ".join(f"{ok:,}" for _, (_, _, ok, _) in counts) + " requests, all ok"
    return "; ".join(
        f"{name}: {ok:,} of {planned:,} ok, {failed:,} failed, {planned - sent:,} not sent"
        for name, (planned, sent, ok, failed) in counts
    )


def stage_caption(report: Report, stage: StageSpec) -> str:
    """What the stage did: name, pace, requests."""
    return f"stage {stage.name}, {how_sent(stage)}, {stage_requests(report, stage)}{bounds(report.slo)}"


def stage_notes(shown: Sequence[Row], *, detail: bool = False) -> list[str]:
    """What must be said under a stage's table: the effects it could not have shown, what would decide, and notes.

    The notes of quantities that showed no difference say the same for each one; they are summed up, save in `detail`.
    """
    seen = [row.difference for row in shown if row.difference is not None and row.verdict is not None]
    quiet = [d for d in seen if d.verdict == "no difference shown" and d.detectable_ratio]
    notes = _none_shown(quiet) + _undecided(seen)
    spoken = [d for d in seen if d.note and (detail or d not in quiet)]
    for note in dict.fromkeys(d.note for d in spoken):
        said_of = [d for d in spoken if d.note == note]
        notes.append(note if len(said_of) == len(seen) else f"{_labels(said_of)}: {note}")
    told = " ".join(notes)
    return notes + [w for w in dict.fromkeys(w for d in seen for w in d.ratio.warnings) if w not in told]


def _none_shown(quiet: Sequence[Difference]) -> list[str]:
    if not quiet:
        return []
    limits = [_effect(d.detectable_ratio or 1.0) for d in quiet]
    needed = max((d.blocks_needed or 0 for d in quiet), default=0)
    more = f" If the effects seen are real, up to {needed} blocks per arm would show them." if needed else ""
    return [f"none shown: effects below {_span(limits)} would not have been seen with these blocks.{more}"]


def _undecided(seen: Sequence[Difference]) -> list[str]:
    undecided = [d for d in seen if d.verdict == "cannot tell" and d.blocks_needed]
    if not undecided:
        return []
    needed = max(d.blocks_needed or 0 for d in undecided)
    which = "" if len(undecided) == len(seen) else f" ({_labels(undecided)})"
    return [f"cannot tell{which}: about {needed} blocks per arm would decide."]


def _labels(differences: Iterable[Difference]) -> str:
    return ", ".join(label(d.quantity) for d in differences)


def _effect(detectable: float) -> float:
    return detectable if detectable >= 1 else 1 / detectable


def _span(limits: Sequence[float]) -> str:
    low, high = ratio_text(min(limits)), ratio_text(max(limits))
    return low if low == high else f"{low.removesuffix('×')}–{high}"


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)


def _dtype(arm: ArmReport) -> str:
    facts = arm.facts
    if facts.kv_dtype is None:
        return f"unknown (asked: {_known(facts.kv_dtype_asked)})"
    asked = "" if facts.kv_dtype_asked in (None, facts.kv_dtype) else f"; asked: {facts.kv_dtype_asked}"
    return f"{facts.kv_dtype} ({facts.kv_dtype_how}{asked})"


def _capacity(arm: ArmReport) -> str:
    if arm.facts.capacity_tokens is None:
        return "unknown"
    return f"{text(arm.facts.capacity_tokens, 'tokens')} ({arm.facts.capacity_how})"


def _backends(arm: ArmReport) -> str:
    seen = dict.fromkeys(
        seen.name if seen.name == seen.how else f"{seen.name} ({seen.how})" for seen in arm.facts.backends
    )
    return ", ".join(seen) or "unknown"


def _engine(arm: ArmReport) -> str:
    return f"{arm.facts.engine} {arm.facts.version}" if arm.facts.version else arm.facts.engine


def _machine(facts: ServerFacts) -> str:
    host = facts.host
    if host is None:
        return "unknown"
    parts = list(dict.fromkeys(host.gpus)) or [facts.device or "", host.cpu or ""]
    if host.driver:
        parts.append(f"driver {host.driver}")
    return ", ".join(part for part in parts if part) or "unknown"


def _flags(arm: ArmReport) -> str:
    return " ".join(f"--{name} {value}".strip() for name, value in arm.spec.flags.items()) or "none"


def _switch(value: bool | None) -> str:
    return "unknown" if value is None else ("on" if value else "off")


_FACTS: dict[str, Callable[[ArmReport], str]] = {
    "engine": _engine,
    "KV dtype in effect": _dtype,
    "KV capacity": _capacity,
    "attention backend": _backends,
    "block size": lambda arm: text(arm.facts.block_tokens, "tokens"),
    "max_num_seqs": lambda arm: _known(arm.facts.max_num_seqs),
    "prefix caching": lambda arm: _switch(arm.facts.prefix_caching),
    "machine": lambda arm: _machine(arm.facts),
}
_PROFILE: dict[str, Callable[[ArmReport], str]] = {
    "profile": lambda arm: _known(arm.facts.profile),
    "profile's source": lambda arm: _known(arm.facts.profile_source),
}
_MORE_FACTS: dict[str, Callable[[ArmReport], str]] = {
    "model": lambda arm: _known(arm.facts.model),
    "max_model_len": lambda arm: text(arm.facts.max_model_len, "tokens"),
    "KV memory": lambda arm: text(arm.facts.kv_memory_bytes, "bytes"),
    "KV per token": lambda arm: text(arm.facts.bytes_per_token, "bytes"),
    "ready after": lambda arm: text(arm.facts.ready_after_s, "s"),
    "URL": lambda arm: arm.facts.url or arm.spec.url or "unknown",
    "this arm's flags": _flags,
    "started with": lambda arm: " ".join(arm.facts.argv) or "unknown",
}


def facts(report: Report, *, detail: bool = False) -> list[Fact]:
    """Facts of all arms side by side, as read back from the servers."""
    table = _FACTS | _MORE_FACTS if detail else _FACTS
    if any(arm.facts.profile for arm in report.arms):
        table = {name: read for name, read in (_PROFILE | table).items() if detail or name != "profile's source"}
    extras = {"KV capacity": _capacity_ratio(report)}
    return [
        Fact(label=name, values=tuple(read(arm) for arm in report.arms), extra=extras.get(name, ""))
        for name, read in table.items()
    ]


def _capacity_ratio(report: Report) -> str:
    capacities = {arm.name: arm.facts.capacity_tokens for arm in report.arms}
    base, test = capacities.get(report.base), capacities.get(report.test or "")
    return ratio_text(test / base) if base and test else ""


def server_warnings(report: Report) -> list[str]:
    """The servers' own telling lines, each with its arm."""
    return [f"{arm.name}: {line}" for arm in report.arms for line in arm.facts.warnings]


def failed_requests(report: Report) -> list[str]:
    """ "fp8: 12 timeout, 4 status" for each arm with failures."""
    return [
        f"{arm.name}: " + ", ".join(f"{count:,} {kind}" for kind, count in arm.failures.items())
        for arm in report.arms
        if arm.failures
    ]
