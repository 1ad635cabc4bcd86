"""A grid's maps: as a table, as a heat map with the break-even line, and all cells in figures."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from xml.etree.ElementTree import Element

from loadgen.records import BreakEven, Cell, GridMap, Report
from loadgen.report import words
from loadgen.report.element import element
from loadgen.report.figure import Chart, Json, axis, layout
from loadgen.report.sections import badge, listed, table

UNDECIDED = ("no difference shown", "cannot tell")
LIFT = 0.18  # of a row's height: figures stand above its middle, crossings below


def title(found: GridMap) -> str:
    """ "Output throughput over context and concurrency"."""
    name = "Output throughput" if found.quantity == "output_tokens_per_s" else words.label(found.quantity)
    return f"{name} over context and concurrency"


def marks(found: GridMap) -> str:
    """What the signs mean."""
    signs = ", ".join(f"{sign} {word}" for sign, word, _ in words.DIFFERENCE.values())
    return f"{signs}, with all {len(found.cells)} cells in view"


def by_place(found: GridMap) -> dict[tuple[int, int], Cell]:
    """The cells by (context, concurrency)."""
    return {(cell.context_tokens, cell.concurrency): cell for cell in found.cells}


def written(found: GridMap) -> Iterable[tuple[str, ...]]:
    """One row per concurrency: its name, and each context's ratio; "" where no cell was sent."""
    cells = by_place(found)
    for streams in found.concurrency:
        places = [cells.get((context, streams)) for context in found.contexts]
        yield (f"{streams:,}", *(words.cell_text(cell) if cell is not None else "" for cell in places))


def heat_map(report: Report, found: GridMap) -> Chart:
    """The ratio of test to base by colour and figure; undecided cells are outlined; the break-even runs through it."""
    rows, columns = len(found.concurrency), len(found.contexts)
    shapes = [_outline(found, cell) for cell in found.cells if cell.verdict in UNDECIDED]
    contexts, streams = ([f"{value:,}" for value in values] for values in (found.contexts, found.concurrency))
    quiet = {"showgrid": False, "tickangle": 0, "tickmode": "array"}
    return Chart(
        title=title(found),
        caption=f"{report.test} / {report.base}. {marks(found)}; dotted: not decided; blank: left out. "
        "Line: break-even, interpolated between cells, with its interval.",
        height_px=110 + 46 * rows,
        data=[_colours(report, found), _figures(found), _line(found), _points(found)],
        layout=layout(
            xaxis=axis(
                None,
                title={"text": "prompt tokens"},
                range=[-0.5, columns - 0.5],
                tickvals=list(range(columns)),
                ticktext=contexts,
                **quiet,
            ),
            yaxis=axis(
                None,
                title={"text": "requests in flight"},
                range=[-0.5, rows - 0.5],
                tickvals=list(range(rows)),
                ticktext=streams,
                **quiet,
            ),
            shapes=shapes,
        ),
        arms=False,
    )


def _gain(found: GridMap, cell: Cell) -> float | None:
    """The logarithm of the ratio, positive where it is better."""
    if not cell.ratio.center or cell.ratio.center <= 0:
        return None
    return math.log2(cell.ratio.center) * (1 if words.more_is_better(found.quantity) else -1)


def _colours(report: Report, found: GridMap) -> Json:
    cells = by_place(found)
    gains = [
        [None if (cell := cells.get((x, y))) is None else _gain(found, cell) for x in found.contexts]
        for y in found.concurrency
    ]
    hovers = [
        ["" if (cell := cells.get((x, y))) is None else _hover(report, found, cell) for x in found.contexts]
        for y in found.concurrency
    ]
    most = max((abs(gain) for row in gains for gain in row if gain is not None), default=0.0) or 1.0
    return {
        "type": "heatmap",
        "z": gains,
        "zmin": -most,
        "zmax": most,
        "colorscale": [[0, "var(--bad)"], [0.5, "var(--card)"], [1, "var(--good)"]],
        "opacity": 0.6,
        "showscale": False,
        "xgap": 3,
        "ygap": 3,
        "text": hovers,
        "hoverongaps": False,
        "hovertemplate": "%{text}<extra></extra>",
    }


def _hover(report: Report, found: GridMap, cell: Cell) -> str:
    unit = words.unit(found.quantity)
    figures = " → ".join(words.with_interval(one, unit) for one in (cell.base, cell.test))
    said = words.DIFFERENCE[cell.verdict][1]
    place = f"{cell.context_tokens:,} tokens, {cell.concurrency:,} in flight"
    return f"{place}: {words.ratio_interval(cell.ratio)}, {said}; {figures}"


def _figures(found: GridMap) -> Json:
    return {
        "type": "scatter",
        "mode": "text",
        "x": [found.contexts.index(cell.context_tokens) for cell in found.cells],
        "y": [found.concurrency.index(cell.concurrency) + LIFT for cell in found.cells],
        "text": [words.cell_text(cell) for cell in found.cells],
        "textfont": {"color": "var(--ink)"},
        "hoverinfo": "skip",
    }


def _outline(found: GridMap, cell: Cell) -> Json:
    x, y = found.contexts.index(cell.context_tokens), found.concurrency.index(cell.concurrency)
    line = {"color": "var(--ink)", "width": 1.5, "dash": "dot"}
    sides = {"x0": x - 0.46, "x1": x + 0.46, "y0": y - 0.43, "y1": y + 0.43}
    return {"type": "rect", "xref": "x", "yref": "y", "line": line} | sides


def place_of(contexts: Sequence[int], tokens: float) -> float:
    """Where a context stands between the columns, which are equally far apart: log-linear between two of them."""
    for number, (low, high) in enumerate(pairwise(contexts)):
        if low <= tokens <= high:
            return number + math.log(tokens / low) / math.log(high / low)
    return -0.5 if tokens < contexts[0] else len(contexts) - 0.5


def _line(found: GridMap) -> Json:
    """Stairs between worse and better: a row's crossing, or the edge of a row that does not cross and is decided there.

    It breaks at rows that are not decided, that cross more than once, or that cross the other way round than the first.
    """
    crossing = next((row for row in found.break_even if row.contexts), None)
    left = crossing.shortest if crossing is not None and crossing.shortest is not None else "worse"
    x: list[float | None] = []
    y: list[float | None] = []
    for number, row in enumerate(found.break_even):
        at = _edge(found, row, left)
        x += [at, at]
        y += [number - 0.5, number + 0.5]
    line = {"color": "var(--ink)", "width": 2.5}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "hoverinfo": "skip", "connectgaps": False}


def _edge(found: GridMap, row: BreakEven, left: str) -> float | None:
    """Where the row's boundary stands, `left` lying left of it."""
    if row.shortest is None or len(row.contexts) > 1:
        return None
    if not row.contexts:
        cells = [cell for cell in found.cells if cell.concurrency == row.concurrency]
        all_left = row.shortest == left
        last = (max if all_left else min)(cells, key=lambda cell: cell.context_tokens)
        edge = len(found.contexts) - 0.5 if all_left else -0.5
        return None if last.verdict in UNDECIDED else edge
    center = row.contexts[0].center
    return place_of(found.contexts, center) if center is not None and row.shortest == left else None


def _points(found: GridMap) -> Json:
    """Every crossing with its interval."""
    rows = [(number, one) for number, row in enumerate(found.break_even) for one in row.contexts if one.center]
    x = [place_of(found.contexts, one.center or 0.0) for _, one in rows]
    ends = [
        [place_of(found.contexts, end if end is not None else one.center or 0.0) for end in (one.lo, one.hi)]
        for _, one in rows
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": [number - LIFT for number, _ in rows],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [high - center for center, (_, high) in zip(x, ends, strict=True)],
            "arrayminus": [center - low for center, (low, _) in zip(x, ends, strict=True)],
            "color": "var(--ink)",
            "thickness": 1.5,
            "width": 5,
        },
        "marker": {"symbol": "diamond", "size": 9, "color": "var(--ink)"},
        "text": [found.break_even[number].said for number, _ in rows],
        "hovertemplate": "%{text}<extra></extra>",
    }


def section(report: Report, found: GridMap) -> Element:
    """The break-even in words, and every cell in figures behind a fold."""
    lines = [f"{row.concurrency:,} in flight: {row.said}" for row in found.break_even]
    head = ["prompt tokens", "in flight", report.base, report.test or "", "ratio", "difference"]
    summary = element("summary", f"All {len(found.cells)} cells, with intervals")
    unit = words.unit(found.quantity)

    def row(cell: Cell) -> Element:
        sign, word, mood = words.DIFFERENCE[cell.verdict]
        figures = (words.with_interval(cell.base, unit), words.with_interval(cell.test, unit))
        cells = (f"{cell.concurrency:,}", *figures, words.ratio_interval(cell.ratio), badge(sign, word, mood))
        return element(
            "tr", element("th", f"{cell.context_tokens:,}", scope="row"), *(element("td", one) for one in cells)
        )

    return element(
        "div",
        listed(lines, class_="notes"),
        element("details", summary, table(head, map(row, found.cells), "numbers")),
    )
