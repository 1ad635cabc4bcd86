"""A grid of four contexts and three concurrencies, one cell left out, written by hand."""

from loadgen.analysis.grid import break_even
from loadgen.records import Cell, Estimate, GridMap, StageSpec, Verdict

CONTEXTS, CONCURRENCY = (256, 1_024, 4_096, 16_384), (1, 8, 64)
SIGNS: dict[str, Verdict] = {"+": "better", "-": "worse", "=": "no difference shown", "?": "cannot tell"}

# ratio of output throughput and of ITL, what is held of each; by concurrency, then by context
CELLS: dict[int, tuple[tuple[float | None, str, float | None, str], ...]] = {
    1: ((0.97, "-", 1.03, "-"), (0.98, "-", 1.02, "-"), (1.001, "=", 1.01, "="), (1.06, "+", 0.93, "+")),
    8: ((0.96, "-", 1.02, "-"), (1.03, "+", 0.97, "+"), (1.11, "+", 0.9, "+"), (1.2, "+", 1.3, "-")),
    64: ((1.01, "=", 0.99, "="), (1.3, "+", 0.8, "+"), (None, "?", None, "?")),
}


def _estimate(center: float | None, spread: float = 0.02) -> Estimate:
    if center is None:
        return Estimate(center=None, warnings=("the work differs",))
    return Estimate(center=center, lo=center * (1 - spread), hi=center * (1 + spread), n=4)


def _cells(ratio: int, usual: float) -> list[Cell]:
    return [
        Cell(
            stage=f"{context}x{streams}",
            context_tokens=context,
            concurrency=streams,
            base=_estimate(usual),
            test=_estimate(None if cell[ratio] is None else usual * float(cell[ratio] or 0)),
            ratio=_estimate(None if cell[ratio] is None else float(cell[ratio] or 0)),
            verdict=SIGNS[str(cell[ratio + 1])],
        )
        for streams in CONCURRENCY
        for context, cell in zip(CONTEXTS, CELLS[streams], strict=False)
    ]


def grid_maps() -> tuple[GridMap, ...]:
    """Output throughput and ITL."""
    return tuple(
        GridMap(
            quantity=quantity,
            contexts=CONTEXTS,
            concurrency=CONCURRENCY,
            cells=tuple(cells),
            break_even=tuple(
                break_even(quantity, [c for c in cells if c.concurrency == streams]) for streams in CONCURRENCY
            ),
        )
        for quantity, ratio, usual in (("output_tokens_per_s", 0, 120.0), ("itl_p50_s", 2, 0.008))
        for cells in (_cells(ratio, usual),)
    )


def grid_stages() -> tuple[StageSpec, ...]:
    """The cells as stages."""
    return tuple(
        StageSpec(
            name=cell.stage,
            role="one_stream" if cell.concurrency == 1 else "saturated",
            concurrency=cell.concurrency,
            context_tokens=cell.context_tokens,
            planned=3 * cell.concurrency,
            warmup=1,
        )
        for cell in grid_maps()[0].cells
    )
