"""The two figures that carry the verdict: ratios with their intervals, and gap against context."""

from collections.abc import Iterable, Sequence

from loadgen.quantities import QUANTITIES, text
from loadgen.records import Decomposition, Difference, Line, Report, StageSpec
from loadgen.report import rows, words
from loadgen.report.figure import Chart, Json, axis, color_of, dash_of, layout, safe

_COARSE = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000)
_FINE = (0.5, 0.6, 0.8, 1, 1.25, 1.6, 2)
_MARKS: dict[str, tuple[str, str]] = {
    "better": ("triangle-up", "var(--good)"),
    "worse": ("triangle-down", "var(--bad)"),
    "no difference shown": ("circle-open", "var(--muted)"),
    "cannot tell": ("x-thin-open", "var(--open)"),
}


def forest(report: Report, stage: StageSpec) -> Chart | None:
    """Test / base with its interval for each judged quantity, on a log axis with a line at 1."""
    shown = [
        row.difference
        for row in rows.stage_rows(report, stage)
        if row.difference is not None and row.verdict is not None and (row.difference.ratio.center or 0) > 0
    ]
    if not shown:
        return None
    ends = [1.0, *(end for d in shown for end in (d.ratio.lo, d.ratio.center, d.ratio.hi) if end and end > 0)]
    low, high = min(ends) / 1.12, max(ends) * 1.12
    ticks = [tick for tick in (_FINE if high / low < 4 else _COARSE) if low <= tick <= high]
    x = axis(None, type="log", tickangle=0, tickvals=ticks, ticktext=[f"{tick:g}×" for tick in ticks])
    y = axis(None, autorange="reversed", showgrid=False, tickfont={"color": "var(--ink)"})
    return Chart(
        title=words.ROLE[stage.role],
        caption="",
        height_px=72 + 30 * len(shown),
        data=_forest_marks(shown),
        layout=layout(xaxis=x, yaxis=y, shapes=[_upright(1.0, "var(--ink)", "solid")]),
        arms=False,
    )


def _forest_marks(shown: Sequence[Difference]) -> list[Json]:
    order = [_forest_label(d) for d in shown]
    traces = []
    for verdict, (symbol, color) in _MARKS.items():
        chosen = [d for d in shown if d.verdict == verdict]
        centers = [d.ratio.center or 0.0 for d in chosen]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": centers,
                "y": [_forest_label(d) for d in chosen],
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "visible": any(d.ratio.lo is not None for d in chosen),
                    "array": [_or(d.ratio.hi, c) - c for d, c in zip(chosen, centers, strict=True)],
                    "arrayminus": [c - _or(d.ratio.lo, c) for d, c in zip(chosen, centers, strict=True)],
                    "color": color,
                    "thickness": 2,
                    "width": 4,
                },
                "marker": {"symbol": symbol, "size": 11, "color": color, "line": {"width": 2, "color": color}},
                "text": [f"{words.ratio_interval(d.ratio)}, {words.DIFFERENCE[verdict][1]}" for d in chosen],
                "hovertemplate": "%{y}: %{text}<extra></extra>",
            }
        )
    # A trace without points puts every quantity on the axis in the table's order, whatever its verdict.
    return [{"type": "scatter", "mode": "markers", "x": [None] * len(order), "y": order, "hoverinfo": "skip"}, *traces]


def _or(end: float | None, center: float) -> float:
    return center if end is None else end


def _forest_label(difference: Difference) -> str:
    arrow = {"higher": " ↑", "lower": " ↓"}[QUANTITIES[difference.quantity].better or "higher"]
    return words.label(difference.quantity) + arrow


def _upright(x: float, color: str, dash: str) -> Json:
    line = {"color": color, "width": 1.5, "dash": dash}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": line}


def context(report: Report) -> Chart | None:
    """Time between tokens against context: binned points, both fitted lines, the break-even with its interval."""
    found = report.decomposition
    if found is None:
        return None
    far = max((*found.base.contexts, *found.test.contexts), default=0.0)
    data = [trace for line in (found.base, found.test) for trace in _line_traces(report, line, far)]
    if not data:
        return None
    shapes, notes = _break_even(found, far)
    return Chart(
        title="Time between tokens against context",
        caption=f"Stage {found.stage}. Points: median and quartiles of the gaps by context. Lines: the fit.",
        height_px=400,
        data=data,
        layout=layout(
            xaxis=axis("tokens", title={"text": "context, tokens"}, range=[0, far * 1.04]),
            yaxis=axis("s", title={"text": "time between tokens"}),
            shapes=shapes,
            annotations=notes,
        ),
    )


def _line_traces(report: Report, line: Line, far: float) -> Iterable[Json]:
    color, name = color_of(report, line.arm), safe(line.arm)
    if line.contexts:
        gaps = list(zip(line.gaps_s, line.gaps_lo_s, line.gaps_hi_s, strict=False))
        yield {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": line.contexts,
            "y": line.gaps_s,
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": [hi - gap for gap, _, hi in gaps],
                "arrayminus": [gap - lo for gap, lo, _ in gaps],
                "color": color,
                "thickness": 1,
                "width": 0,
            },
            "marker": {"color": color, "size": 7, "symbol": "circle" if line.arm == report.base else "diamond"},
        }
    intercept, slope = line.intercept_s.center, line.slope_s_per_token.center
    if intercept is not None and slope is not None and far > 0:
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": f"{name}, fit",
            "x": [0.0, far * 1.04],
            "y": [intercept, intercept + slope * far * 1.04],
            "line": {"color": color, "width": 2, "dash": dash_of(report, line.arm)},
        }


def _break_even(found: Decomposition, far: float) -> tuple[list[Json], list[Json]]:
    estimate = found.break_even_tokens
    center = estimate.center
    if center is None or not 0 <= center <= far * 1.04:
        return [], []
    shapes = [_upright(center, "var(--ink)", "dot")]
    if estimate.lo is not None and estimate.hi is not None:
        sides = {"x0": max(estimate.lo, 0.0), "x1": min(estimate.hi, far * 1.04), "y0": 0, "y1": 1}
        fill = {"fillcolor": "var(--ink)", "opacity": 0.07, "line": {"width": 0}, "layer": "below"}
        shapes.append({"type": "rect", "xref": "x", "yref": "paper"} | sides | fill)
    left = center > far / 2
    note = {
        "xref": "x",
        "yref": "paper",
        "x": center,
        "y": 1,
        "text": f"break-even {text(center, 'tokens')}",
        "showarrow": False,
        "xanchor": "right" if left else "left",
        "yanchor": "top",
        "xshift": -6 if left else 6,
        "font": {"color": "var(--ink)"},
    }
    return shapes, [note]
