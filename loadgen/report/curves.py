"""The figures that show what happened: server gauges over time, latency distributions."""

import math
from collections.abc import Sequence

from loadgen.quantities import text
from loadgen.records import Curve, Report, StageSpec
from loadgen.report import words
from loadgen.report.figure import Chart, Json, axis, color_of, dash_of, layout, safe

_SERIES = ("kv_usage_ratio", "running", "waiting", "preemptions")


def over_time(report: Report, stage: StageSpec) -> Chart | None:
    """KV usage, running, waiting and preemptions of every block on one time axis, a panel each."""
    curves = [c for c in report.curves if c.kind == "time" and c.stage == stage.name and len(c.x) > 1]
    present = dict.fromkeys(c.quantity for c in curves)
    order = [name for name in _SERIES if name in present] + [name for name in present if name not in _SERIES]
    if not order:
        return None
    panel = 1 / len(order)
    shape = layout(
        xaxis=axis("s", title={"text": "time since the stage's start"}, anchor=_axis_name("y", len(order) - 1))
    )
    shape["xaxis"]["hoverformat"] = ".3~s"
    notes = []
    for number, name in enumerate(order):
        top = 1 - number * panel
        ends = {"domain": [top - panel + 0.02, top - 0.06 * min(1, panel * 4)], "rangemode": "tozero", "nticks": 4}
        shape["yaxis" + ("" if number == 0 else str(number + 1))] = axis(words.unit(name), **ends)
        notes.append(
            {
                "xref": "paper",
                "yref": "paper",
                "x": 0,
                "y": top,
                "text": safe(words.label(name)),
                "showarrow": False,
                "xanchor": "left",
                "yanchor": "top",
                "font": {"color": "var(--ink)"},
            }
        )
    shape["annotations"] = notes
    return Chart(
        title=words.ROLE[stage.role],
        caption=f"Stage {stage.name}. One line per block; preemptions are counted from the stage's start.",
        height_px=60 + 150 * len(order),
        data=[_series(report, c, _axis_name("y", order.index(c.quantity)), c.x, c.y) for c in curves],
        layout=shape,
    )


def _axis_name(letter: str, number: int) -> str:
    return letter if number == 0 else f"{letter}{number + 1}"


def _series(report: Report, curve: Curve, y_axis: str, x: Sequence[float], y: Sequence[float]) -> Json:
    alone = (
        sum(1 for c in report.curves if (c.quantity, c.stage, c.arm) == (curve.quantity, curve.stage, curve.arm)) == 1
    )
    block = "" if curve.block < 0 else f", block {curve.block + 1}"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": safe(curve.arm) + block,
        "x": x,
        "y": y,
        "yaxis": y_axis,
        "opacity": 1 if alone else 0.65,
        "line": {
            "color": color_of(report, curve.arm),
            "width": 2 if alone else 1.5,
            "dash": dash_of(report, curve.arm),
            "shape": "hv" if curve.quantity == "preemptions" else "linear",
        },
    }


def distributions(report: Report, stage: StageSpec) -> list[Chart]:
    """One chart for each distribution of the stage: the share of values at or under x."""
    curves = [c for c in report.curves if c.kind == "quantile" and c.stage == stage.name and len(c.x) > 1]
    return [
        _distribution(report, stage, name, [c for c in curves if c.quantity == name])
        for name in dict.fromkeys(c.quantity for c in curves)
    ]


def _distribution(report: Report, stage: StageSpec, quantity: str, curves: Sequence[Curve]) -> Chart:
    values = [value for curve in curves for value in curve.y]
    wide = min(values) > 0 and max(values) / min(values) > 8
    unit, label = words.unit(quantity), words.label(quantity)
    scale: Json = {"rangemode": "tozero"}
    if wide:
        ticks = _log_ticks(min(values), max(values))
        scale = {
            "type": "log",
            "tickvals": ticks,
            "ticktext": [text(tick, unit).replace(".00 ", " ") for tick in ticks],
        }
    return Chart(
        title=f"{label}, {words.ROLE[stage.role].lower()}",
        caption="",
        height_px=280,
        data=[_series(report, curve, "y", curve.y, curve.x) for curve in curves],
        layout=layout(
            xaxis=axis(unit, title={"text": safe(label) + (", log scale" if wide else "")}, **scale),
            yaxis=axis("ratio", range=[0, 1.01]),
        ),
    )


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade within [low, high]; the decades alone where there are more than three."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 1000 else (1,)
    return [tick for decade in decades for step in steps if low <= (tick := float(f"{step}e{decade}")) <= high]
