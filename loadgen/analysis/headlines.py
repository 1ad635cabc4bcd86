"""The answer in words: one sentence for one stream, one for saturation, one for an open loop.

Each role looks at a few quantities, stated here, and at no other. A verdict counts in a headline only if it holds with
all quantities of all headlines in view (Holm), so that an experiment with equals has any false headline at most 5 % of
the time, however many rows the table has. The cells of a grid have one headline together, from their output throughput.
In a closed loop throughput rules: with C requests in flight, throughput x
mean E2E = C, so that what is won in throughput is won in the time of the whole answer. Latencies rule elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from loadgen.analysis import grid, stats
from loadgen.analysis.compare import Comparison
from loadgen.analysis.study import Study
from loadgen.analysis.wording import listed, times
from loadgen.quantities import QUANTITIES
from loadgen.records import Difference, GridMap, Headline, Role, StageSpec, Verdict

FAMILIES: dict[Role, tuple[str, ...]] = {
    "one_stream": ("itl_p50_s", "ttft_p50_s"),
    "saturated": ("output_tokens_per_s", "ttft_p50_s", "itl_p50_s", "goodput_per_s"),
    "open_loop": ("ttft_from_due_p50_s", "ttft_from_due_p95_s", "itl_p50_s", "goodput_per_s"),
}
OF_CELLS = (grid.MAPPED[0],)
PLACES: dict[Role, str] = {"one_stream": "In one stream", "saturated": "At saturation", "open_loop": "Under open load"}

Answer = Literal["pays", "does not pay", "trade-off", "no difference shown", "cannot tell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A role's comparisons, sorted by what holds with all of them in view."""

    better: tuple[Difference, ...]
    worse: tuple[Difference, ...]
    open: tuple[Difference, ...]  # undecided
    blind: tuple[Difference, ...]  # cannot tell
    together: int = 0  # quantities in view, of all stages

    def has(self, side: str, *prefixes: str) -> bool:
        """Whether a quantity with one of these prefixes is on a side."""
        return any(one.quantity.startswith(prefixes) for one in getattr(self, side))


def headlines(study: Study, found: Mapping[str, Family], maps: Sequence[GridMap]) -> tuple[Headline, ...]:
    """One per stage, in the order of the stages, and one for the cells of a grid together."""
    if study.test is None:
        return ()
    alone = [spec for spec in study.stages if spec.context_tokens is None]
    told = [_headline(study.test, spec, found[spec.name]) for spec in alone]
    return (*told, *([_of_grid(study.test, maps[0])] if maps else []))


def _of_grid(test: str, found: GridMap) -> Headline:
    verdicts = {cell.verdict for cell in found.cells}
    answer: Answer = "no difference shown" if "no difference shown" in verdicts else "cannot tell"
    if {"better", "worse"} <= verdicts:
        answer = "trade-off"
    elif verdicts & {"better", "worse"}:
        answer = "pays" if "better" in verdicts else "does not pay"
    return Headline(role="grid", stage="grid", verdict=answer, sentence=f"Over the grid {grid.summary(test, found)}")


def held(stages: Sequence[StageSpec], found: Mapping[str, Family]) -> dict[str, Verdict]:
    """What holds of each cell of a grid, by stage."""
    return {spec.name: _held(found[spec.name]) for spec in grid.cells_of(stages)}


def _held(family: Family) -> Verdict:
    if family.better or family.worse:
        return "better" if family.better else "worse"
    return "no difference shown" if family.open else "cannot tell"


def families(stages: Sequence[StageSpec], comparisons: Sequence[Comparison]) -> dict[str, Family]:
    """Holm over the quantities of all stages' roles together; what does not hold any more is undecided."""
    by_name = {(one.difference.stage, one.difference.quantity): one for one in comparisons}
    names = [(spec.name, name) for spec in stages for name in _family(spec) if (spec.name, name) in by_name]
    held = stats.holm([by_name[name].p for name in names])
    members = [
        (by_name[name].difference, "open" if not holds else by_name[name].difference.verdict)
        for name, holds in zip(names, held, strict=True)
    ]

    def side(stage: str, *verdicts: str) -> tuple[Difference, ...]:
        return tuple(
            one
            for one, verdict in members
            if one.stage == stage and ("cannot tell" if one.verdict == "cannot tell" else verdict) in verdicts
        )

    return {
        spec.name: Family(
            better=side(spec.name, "better"),
            worse=side(spec.name, "worse"),
            open=side(spec.name, "open"),
            blind=side(spec.name, "cannot tell"),
            together=len(names),
        )
        for spec in stages
    }


def _family(spec: StageSpec) -> tuple[str, ...]:
    return FAMILIES[spec.role] if spec.context_tokens is None else OF_CELLS


def _headline(test: str, spec: StageSpec, found: Family) -> Headline:
    answer = closed_loop(found) if spec.role == "saturated" else latency_rules(found)
    place = PLACES[spec.role]
    return Headline(role=spec.role, stage=spec.name, verdict=answer, sentence=f"{place} {_words(test, answer, found)}")


def closed_loop(found: Family) -> Answer:
    """Throughput rules. A goodput or a TTFT that goes the other way makes it a trade-off; a slower ITL alone does not:
    with more sequences in a batch each step is longer, and the whole answer still comes sooner.
    """
    if found.has("blind", "output_tokens"):
        return "cannot tell"
    if found.has("better", "output_tokens"):
        return "trade-off" if found.has("worse", "goodput", "ttft") else "pays"
    if found.has("worse", "output_tokens"):
        return "trade-off" if found.has("better", "goodput", "ttft") else "does not pay"
    return latency_rules(found)


def latency_rules(found: Family) -> Answer:
    """Better without worse pays, worse without better does not, both are a trade-off."""
    if found.better and found.worse:
        return "trade-off"
    if found.better or found.worse:
        return "pays" if found.better else "does not pay"
    return "no difference shown" if found.open else "cannot tell"


def _words(test: str, answer: Answer, found: Family) -> str:
    better, worse = _named(found.better), _named(found.worse)
    rest = _rest(found)
    if answer == "cannot tell":
        return f"nothing can be told of {test}: {_why_blind(found)}."
    if answer == "no difference shown":
        return f"no difference of {test} is shown: {_named(found.open)}{_power(found)}{_blind(found)}."
    if answer == "trade-off":
        return f"{test} is a trade-off: better {better}; worse {worse}{rest}."
    if answer == "pays":
        price = f", while this got worse: {worse}" if worse else ""
        return f"{test} pays: {better}{price}{rest}."
    gain = f", while this got better: {better}" if better else ""
    return f"{test} does not pay: {worse}{gain}{rest}."


def _named(differences: Sequence[Difference]) -> str:
    return listed([f"{_label(one.quantity)} {times(one.ratio)}" for one in differences])


def _label(quantity: str) -> str:
    return "output throughput" if quantity == "output_tokens_per_s" else QUANTITIES[quantity].label


def _rest(found: Family) -> str:
    return (f"; no difference shown in {_named(found.open)}" if found.open else "") + _blind(found)


def _blind(found: Family) -> str:
    blind = [_label(one.quantity) for one in found.blind]
    return f"; nothing can be told of {listed(blind)}" if blind else ""


def _power(found: Family) -> str:
    """What could have been seen, by the first of the family; an interval that excludes 1 on its own is explained."""
    first = found.open[0]
    alone = [one for one in found.open if one.verdict != "no difference shown"]
    words = (
        f"; {_label(first.quantity)} would have shown from {first.detectable_ratio:.2f}×"
        if (first.detectable_ratio is not None)
        else ""
    )
    if alone:
        words += f"; {_named(alone)} does not hold with {found.together} quantities in view"
    elif first.blocks_needed is not None:
        words += f"; {first.blocks_needed} blocks per arm would decide if what was seen is the truth"
    return words


def _why_blind(found: Family) -> str:
    notes = list(dict.fromkeys(one.note.removeprefix("cannot tell: ") for one in found.blind if one.note))
    seen = [one for one in found.blind if one.ratio.center is not None]
    reasons = "; ".join(notes) or "it was not measured on both arms"
    return f"{reasons} (seen: {_named(seen)})" if seen else reasons
