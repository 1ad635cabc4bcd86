"""A grid's cells as maps of the ratio over context and concurrency, and the break-even line through them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from loadgen.analysis import stats
from loadgen.analysis.compare import Comparison
from loadgen.analysis.wording import digits
from loadgen.quantities import QUANTITIES
from loadgen.records import BreakEven, Cell, Estimate, GridMap, StageSpec, Verdict

MAPPED = ("output_tokens_per_s", "itl_p50_s")

Side = Literal["better", "worse"]


def cells_of(stages: Sequence[StageSpec]) -> tuple[StageSpec, ...]:
    """The stages that are cells of a grid."""
    return tuple(spec for spec in stages if spec.context_tokens is not None and spec.concurrency is not None)


def maps(
    stages: Sequence[StageSpec], comparisons: Sequence[Comparison], held: Mapping[str, Verdict]
) -> tuple[GridMap, ...]:
    """One map for each of `MAPPED`. `held`: what the headlines hold of each cell's first quantity, by stage."""
    cells = cells_of(stages)
    found = {(one.difference.stage, one.difference.quantity): one for one in comparisons}
    made = []
    for quantity in MAPPED:
        known = [spec for spec in cells if (spec.name, quantity) in found]
        if known:
            chosen = [found[spec.name, quantity] for spec in known]
            verdicts = [held[spec.name] for spec in known] if quantity == MAPPED[0] else _together(chosen)
            made.append(_map(quantity, [_cell(*one) for one in zip(known, chosen, verdicts, strict=True)]))
    return tuple(made)


def _together(comparisons: Sequence[Comparison]) -> list[Verdict]:
    """The verdicts that hold with all of these in view."""
    holds = stats.holm([one.p for one in comparisons])
    return [
        one.difference.verdict if kept or one.difference.verdict == "cannot tell" else "no difference shown"
        for one, kept in zip(comparisons, holds, strict=True)
    ]


def _cell(spec: StageSpec, one: Comparison, verdict: Verdict) -> Cell:
    return Cell(
        stage=spec.name,
        context_tokens=spec.context_tokens or 0,
        concurrency=spec.concurrency or 0,
        base=one.difference.base,
        test=one.difference.test,
        ratio=one.difference.ratio,
        verdict=verdict,
    )


def _map(quantity: str, cells: Sequence[Cell]) -> GridMap:
    concurrency = tuple(sorted({cell.concurrency for cell in cells}))
    return GridMap(
        quantity=quantity,
        contexts=tuple(sorted({cell.context_tokens for cell in cells})),
        concurrency=concurrency,
        cells=tuple(cells),
        break_even=tuple(
            break_even(quantity, [c for c in cells if c.concurrency == streams]) for streams in concurrency
        ),
    )


def break_even(quantity: str, cells: Sequence[Cell]) -> BreakEven:
    """Where the ratio crosses 1 along the cells of one concurrency: between decided cells that say opposite things.

    Between two cells log(ratio) is taken as linear in the context, as a step's time nearly is. Undecided cells give no
    side, but their ratios bend the line. With several crossings between two decided cells, the first is taken.
    """
    row = sorted(cells, key=lambda cell: cell.context_tokens)
    decided = [place for place, cell in enumerate(row) if cell.verdict in ("better", "worse")]
    contexts = tuple(
        _crossing(row[first : last + 1]) for first, last in pairwise(decided) if row[first].verdict != row[last].verdict
    )
    sides = [_side(row[place]) for place in (decided[:1] + decided[-1:])]
    shortest, longest = (sides[0], sides[-1]) if sides else (None, None)
    said = _said(row, decided, contexts)
    return BreakEven(concurrency=row[0].concurrency, contexts=contexts, shortest=shortest, longest=longest, said=said)


def _side(cell: Cell) -> Side:
    return "better" if cell.verdict == "better" else "worse"


def _crossing(row: Sequence[Cell]) -> Estimate:
    """Between the row's ends, which lie on different sides of 1."""
    rising = (row[-1].ratio.center or 1.0) > 1
    center = _first([(cell.context_tokens, cell.ratio.center) for cell in row], rising)
    ends = [
        _first([(cell.context_tokens, end) for cell, end in zip(row, limits, strict=True)], rising)
        for limits in ([cell.ratio.lo for cell in row], [cell.ratio.hi for cell in row])
    ]
    known = sorted(end for end in ends if end is not None)
    interval = (known[0], known[1]) if len(known) == 2 else (None, None)
    return Estimate(center=center, lo=interval[0], hi=interval[1], n=min(cell.ratio.n for cell in row))


def _first(points: Sequence[tuple[int, float | None]], rising: bool) -> float | None:
    """The first context at which the line through the points goes through 1, upwards or downwards."""
    known = [(x, math.log(y) if rising else -math.log(y)) for x, y in points if y is not None and y > 0]
    for (x, y), (further, higher) in pairwise(known):
        if y <= 0 < higher:
            return x + (further - x) * -y / (higher - y)
    return None


def _said(row: Sequence[Cell], decided: Sequence[int], contexts: Sequence[Estimate]) -> str:
    if not decided:
        return "not decided at any context"
    side = _side(row[decided[0]])
    if not contexts:
        rest = "" if len(decided) == len(row) else f" ({_open(row)} not decided)"
        return f"{side} at all contexts{rest}" if not rest else f"{side} wherever decided{rest}"
    parts = [f"{side} below {_tokens(contexts[0])}"]
    for number, _ in enumerate(contexts):
        side = "worse" if side == "better" else "better"
        further = contexts[number + 1] if number + 1 < len(contexts) else None
        parts.append(f"{side} above" if further is None else f"{side} up to {_tokens(further)}")
    return ", ".join(parts)


def _open(row: Sequence[Cell]) -> str:
    return ", ".join(f"{cell.context_tokens:,}" for cell in row if cell.verdict not in ("better", "worse"))


def _tokens(estimate: Estimate) -> str:
    """ "7,010 tokens (6,600–7,400)"."""
    if estimate.center is None:
        return "an unknown context"
    ends = ""
    if estimate.lo is not None and estimate.hi is not None:
        ends = f" ({digits(round(estimate.lo))}–{digits(round(estimate.hi))})"
    return f"{digits(round(estimate.center))} tokens{ends}"


def summary(test: str, found: GridMap) -> str:
    """The map in a sentence: how many cells say what, and where it turns."""
    counts = {verdict: sum(cell.verdict == verdict for cell in found.cells) for verdict in ("better", "worse")}
    undecided = len(found.cells) - sum(counts.values())
    name = "output throughput" if found.quantity == "output_tokens_per_s" else QUANTITIES[found.quantity].label
    lines = "; ".join(_row(found))
    rest = f", {undecided} not decided" if undecided else ""
    cells = f"{counts['better']} of {len(found.cells)} cells, worse in {counts['worse']}{rest}"
    return f"{test} has better {name} in {cells}. Break-even by requests in flight: {lines}."


def _row(found: GridMap) -> Iterator[str]:
    """Neighbouring concurrencies that say the same are told together."""
    same: list[BreakEven] = []
    for line in found.break_even:
        if same and same[-1].said != line.said:
            yield _together_said(same)
            same = []
        same.append(line)
    if same:
        yield _together_said(same)


def _together_said(lines: Sequence[BreakEven]) -> str:
    names = f"{lines[0].concurrency:,}" if len(lines) == 1 else f"{lines[0].concurrency:,} to {lines[-1].concurrency:,}"
    return f"{names}: {lines[0].said}"
