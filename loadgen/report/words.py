"""The phrases that more than one renderer says: verdicts, ratios, intervals, roles, causes."""

import re
from typing import Literal

from loadgen.quantities import QUANTITIES, Unit, text
from loadgen.records import Cell, Check, Estimate, Headline, Report, Slo, StageSpec

Mood = Literal["good", "bad", "even", "open"]

HEADLINE: dict[str, tuple[str, Mood]] = {
    "pays": ("✓", "good"),
    "does not pay": ("✗", "bad"),
    "trade-off": ("±", "open"),
    "no difference shown": ("=", "even"),
    "cannot tell": ("?", "open"),
}
DIFFERENCE: dict[str, tuple[str, str, Mood]] = {
    "better": ("▲", "better", "good"),
    "worse": ("▼", "worse", "bad"),
    "no difference shown": ("=", "none shown", "even"),
    "cannot tell": ("?", "cannot tell", "open"),
}
FINDING: dict[str, tuple[str, Mood]] = {
    "holds": ("●", "bad"),
    "does not hold": ("○", "even"),
    "cannot tell": ("?", "open"),
    "not observable": ("–", "open"),
}
CAUSE: dict[str, str] = {
    "backend": "Backend: a slower kernel took over",
    "conversion": "Conversion: quantizing costs time in each step",
    "short context": "Short context: too little cache is read to gain",
    "unused memory": "Unused memory: freed blocks were not scheduled",
}
ROLE: dict[str, str] = {
    "one_stream": "One stream",
    "saturated": "Saturated",
    "open_loop": "At the given rate",
    "grid": "Grid",
}
RESTART: dict[str, str] = {
    "each-block": "the server was started afresh for each block",
    "never": "the servers stayed up from block to block: intervals allow 1 % for how starts differ",
}
GAUGE: dict[str, tuple[str, Unit]] = {
    "kv_usage_ratio": ("KV usage", "ratio"),
    "running": ("running", "count"),
    "waiting": ("waiting", "count"),
    "preemptions": ("preemptions", "count"),
}
SIMULATED = "SIMULATED: these figures come from an emulator, not from an engine."
NO_CLIENT = "No client existed: in virtual time nothing is sent, and nobody can be late."
TRAFFIC = "Was the traffic as planned?"
NOT_COMPARED = "One arm: there is nothing to compare."
NOT_JUDGED = "No verdict: the run did not get far enough to judge it."

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(words: str) -> str:
    """`words` without what would act on a terminal or a page: control codes and direction overrides become U+FFFD."""
    return _CONTROL.sub("\ufffd", words.replace("\t", " "))


def plain(words: str) -> str:
    """`visible`, on one line."""
    return visible(words).replace("\n", " ")


def label(quantity: str) -> str:
    """What a person calls a quantity, a scrape gauge or a distribution ("ttft" -> "TTFT")."""
    if quantity in QUANTITIES:
        return QUANTITIES[quantity].label
    if quantity in GAUGE:
        return GAUGE[quantity][0]
    first, *rest = quantity.removesuffix("_s").split("_")
    return " ".join((first.upper() if first in {"ttft", "itl", "tpot", "e2e"} else first, *rest))


def unit(quantity: str) -> Unit:
    """The unit of a quantity or of a drawn series; a distribution that the table does not name is in seconds."""
    if quantity in QUANTITIES:
        return QUANTITIES[quantity].unit
    return GAUGE[quantity][1] if quantity in GAUGE else "s"


def more_is_better(quantity: str) -> bool:
    """Whether a ratio above 1 is a gain."""
    return quantity in QUANTITIES and QUANTITIES[quantity].better == "higher"


def ratio_text(value: float | None) -> str:
    """A ratio of test to base: "1.36×"."""
    if value is None:
        return "unknown"
    return f"{_ratio_digits(value)}×"


def cell_text(cell: Cell) -> str:
    """A cell's ratio and what is held of it: "1.36× ▲"; a third decimal where two would make 1.00 of another ratio."""
    ratio = cell.ratio.center
    near = ratio is not None and ratio != 1 and f"{ratio:.2f}" == "1.00"
    written = "–" if ratio is None else f"{ratio:.3f}×" if near else ratio_text(ratio)
    return f"{written} {DIFFERENCE[cell.verdict][0]}"


def ratio_interval(estimate: Estimate) -> str:
    """ "1.36× (1.28–1.45)"; without an interval the ratio alone; "–" where there is no ratio."""
    if estimate.center is None:
        return "–"
    if estimate.lo is None or estimate.hi is None:
        return ratio_text(estimate.center)
    return f"{ratio_text(estimate.center)} ({_ratio_digits(estimate.lo)}–{_ratio_digits(estimate.hi)})"


def with_interval(estimate: Estimate, in_unit: Unit) -> str:
    """ "401 tok/s (378–425)": the unit is written once where all three figures share it."""
    center = text(estimate.center, in_unit)
    if estimate.center is None or estimate.lo is None or estimate.hi is None:
        return center
    lo, hi = text(estimate.lo, in_unit), text(estimate.hi, in_unit)
    tail = " " + center.rpartition(" ")[2]
    if " " in center and lo.endswith(tail) and hi.endswith(tail):
        lo, hi = lo.removesuffix(tail), hi.removesuffix(tail)
    dash = " to " if estimate.lo < 0 else "–"
    return f"{center} ({lo}{dash}{hi})"


def check_sign(check: Check) -> tuple[str, str, Mood]:
    """Sign, word and mood of a check."""
    if check.passed is None:
        return "?", "unknown", "open"
    return ("✓", "yes", "good") if check.passed else ("✗", "no", "bad")


def bounds(slo: Slo) -> str:
    """ "; goodput counts TTFT up to 1.00 s, TPOT up to 50 ms"; nothing where no SLO was given."""
    given = (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s), ("E2E", slo.e2e_s))
    said = ", ".join(f"{name} up to {text(bound, 's')}" for name, bound in given if bound is not None)
    return f"; goodput counts {said}" if said else ""


def how_sent(stage: StageSpec) -> str:
    """ "32 at a time", "at 4 req/s", "at the trace's own times, 2x as fast"."""
    if stage.concurrency is not None:
        return f"{stage.concurrency:,} at a time"
    if stage.rate_per_s is not None:
        return f"at {text(stage.rate_per_s, 'requests_per_s')}"
    if stage.speed is not None:
        pace = "" if stage.speed == 1 else f", {stage.speed:g}x as fast"
        return f"at the trace's own times{pace}"
    return "open loop"


def simulated(report: Report) -> str:
    """What a reader must know before any figure; empty where real engines were measured."""
    profiles = " and ".join(dict.fromkeys(arm.facts.profile for arm in report.arms if arm.facts.profile))
    if report.virtual_time:
        which = f"profile{'s' if ' and ' in profiles else ''} {profiles}" if profiles else "a profile"
        return f"SIMULATED: no server ran; these figures follow from {which}."
    return SIMULATED if report.simulated else ""


def headline_title(report: Report, headline: Headline) -> str:
    """ "Saturated"; with the stage's name where several stages have that role."""
    several = sum(one.role == headline.role for one in report.headlines) > 1
    return f"{ROLE[headline.role]}, {headline.stage}" if several else ROLE[headline.role]


def servers(report: Report) -> str:
    """The title of the section on what the arms are."""
    return "The engines, as their profile has them" if report.virtual_time else "The servers, as read back from them"


def blocks_line(report: Report) -> str:
    """ "4 + 4 blocks (bf16 fp8 fp8 bf16 ...); the servers stayed up from block to block"."""
    counts = " + ".join(str(arm.blocks) for arm in report.arms)
    one = sum(arm.blocks for arm in report.arms) == 1
    order = f" ({_order(report)})" if len(report.order) > 1 else ""
    how = RESTART.get(report.restart, report.restart)
    return f"{counts} block{'' if one else 's'}{order}" + (f"; {how}" if report.test else "")


def _order(report: Report) -> str:
    if max(map(len, report.order)) <= 12:
        return " ".join(report.order)
    return " ".join("A" if arm == report.base else "B" for arm in report.order) + ", A = base"


def _ratio_digits(value: float) -> str:
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.095 else f"{value:.3f}"


def share_sentence(share_above: float | None) -> str:
    """ " 22 % of the tokens of this traffic are decoded above it."; empty where the share is not known."""
    return (
        "" if share_above is None else f" {text(share_above, 'ratio')} of this traffic's tokens are decoded above it."
    )
