"""What a trace is like, as one HTML page: figures, tables, and the record itself."""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

import msgspec
import numpy as np

from loadgen.quantities import text
from loadgen.report.element import element
from loadgen.report.figure import Chart, Json, axis, layout
from loadgen.report.page import Figures, json_script, section, whole
from loadgen.report.sections import listed, table
from loadgen.traces.columns import Columns, Floats
from loadgen.traces.describe import Description, Reuse, Spread
from loadgen.traces.resident import held_tokens
from loadgen.traces.reuse import Ints
from loadgen.traces.shapes import doublings, highest, per_second, width_s

LINE = "var(--base)"
LEVELS = ("mean", "p10", "p50", "p90", "p99", "max")


def render(of: Description, columns: Columns, outlook: Sequence[str]) -> str:
    """The whole page, about 5 MB, nearly all of it plotly.js. `columns`: the rows that `of` describes."""
    figures = Figures()
    parts = [
        ("outlook", "What it says of KV-cache quantization", listed(outlook)),
        ("lengths", "Lengths", element("div", _lengths(of), figures.grid(_length_charts(columns)))),
        ("time", "Over time", figures.grid(_time_charts(of, columns))),
        ("reuse", "Reuse of prefixes", figures.grid([_curve(of.reuse)]) if of.reuse and of.reuse.curve else None),
        ("notes", "Notes", listed(of.notes) if of.notes else None),
    ]
    title = f"{of.source}: {of.rows_kept:,} requests"
    rate = f", {of.arrivals.rate_per_s:.3g} requests/s" if of.arrivals.rate_per_s else ""
    body = element(
        "body",
        element(
            "header",
            element("h1", title),
            element("p", f"format {of.format}, {of.span_s:,.0f} s{rate}", class_="caption"),
        ),
        element("main", *(section(name, heading, part) for name, heading, part in parts if part is not None)),
        json_script("trace-data", msgspec.json.encode(of).decode()),
    )
    return whole(title, body, figures)


def _lengths(of: Description) -> Element:
    kinds: list[tuple[str, Spread | None]] = [("prompt tokens", of.input_tokens), ("output tokens", of.output_tokens)]
    if of.sessions is not None:
        kinds += [("turns of a session", of.sessions.turns), ("tokens appended per turn", of.sessions.appended_tokens)]
        kinds += [("think time, s", of.sessions.think_s)]
    rows = [
        element(
            "tr",
            element("th", kind, scope="row"),
            *(element("td", text(getattr(spread, level), "count")) for level in LEVELS),
        )
        for kind, spread in kinds
        if spread is not None
    ]
    return table(["", *LEVELS], rows, "numbers")


def _length_charts(columns: Columns) -> Iterator[Chart]:
    for title, values in (("Prompt tokens", columns.input_tokens), ("Output tokens", columns.output_tokens)):
        yield _bars(title, values)


def _bars(title: str, values: Ints) -> Chart:
    bins = doublings(values)
    names = [f"{one.low:,}" for one in bins]
    told = [f"{one.low:,} to {one.high - 1:,}: {one.rows:,}" for one in bins]
    data: Json = {
        "type": "bar",
        "x": names,
        "y": [one.rows for one in bins],
        "text": told,
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": LINE},
    }
    x = axis(None, type="category", title={"text": "tokens, from"})
    return _chart(title, "Each bar is twice as wide as the one before.", data, (x, axis("count")))


def _time_charts(of: Description, columns: Columns) -> Iterator[Chart]:
    width = width_s(float(columns.at_s[-1]))
    x = axis("s", title={"text": "time since the first request"}, hoverformat=".3~s")
    rate = _steps(*per_second(columns.at_s, width))
    yield _chart(
        "Requests per second", f"Mean of each {width:g} s.", rate, (x, axis("requests_per_s", rangemode="tozero"))
    )
    instants, held = held_tokens(columns, of.resident.assumed)
    tokens = _steps(*highest(instants, held, width))
    capacity = of.resident.capacity_tokens
    marks = [] if capacity is None else [_level(capacity)]
    speeds = of.resident.assumed
    said = (
        f"Highest of each {width:g} s at {speeds.prefill_tokens_per_s:,.0f} prefill tokens/s and "
        f"{text(speeds.decode_gap_s, 's')} per output token, without queueing."
    )
    said += f" Dotted: {capacity:,} tokens." if capacity is not None else ""
    yield _chart("KV cache wanted, tokens", said, tokens, (x, axis("tokens", rangemode="tozero")), marks)


def _steps(x: Floats, y: Floats) -> Json:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x.tolist(),
        "y": np.round(y, 3).tolist(),
        "line": {"color": LINE, "width": 1.5, "shape": "hv"},
    }


def _level(y: float) -> Json:
    line = {"color": "var(--test)", "width": 1.5, "dash": "dot"}
    return {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line}


def _curve(reuse: Reuse) -> Chart:
    sizes = [size for size, _ in reuse.curve]
    data: Json = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": sizes,
        "y": [ratio for _, ratio in reuse.curve],
        "line": {"color": LINE, "width": 2},
        "hovertemplate": "%{x:,} tokens: %{y:.1%}<extra></extra>",
    }
    ticks = {"tickvals": sizes, "ticktext": [text(size, "tokens").removesuffix(" tokens") for size in sizes]}
    x = axis(None, type="log", title={"text": "capacity of an LRU prefix cache, tokens"}, **ticks)
    y = axis("ratio", rangemode="tozero")
    said = f"By blocks of {reuse.block_tokens} tokens, running requests left out. Dotted: a cache without limit."
    return _chart("Prompt tokens found", said, data, (x, y), [_level(reuse.shared_ratio)])


def _chart(title: str, caption: str, data: Json, axes: tuple[Json, Json], shapes: Sequence[Json] = ()) -> Chart:
    shape = layout(xaxis=axes[0], yaxis=axes[1], shapes=list(shapes))
    return Chart(title=title, caption=caption, height_px=300, data=[data], layout=shape, arms=False)
