"""What every figure shares: plotly.js as plain dictionaries, quiet axes, the arms' colours.

Colours are written "var(--name)": the page replaces them by its style's values, so that one figure serves light,
dark and print. Values stay in base units; the axes' formats make ms and percent of them.
"""

import html
from dataclasses import dataclass
from typing import Any

from loadgen.quantities import Unit
from loadgen.records import Report
from loadgen.report import words

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One figure: `data` and `layout` as plotly.js takes them, and what stands around it."""

    title: str
    caption: str
    height_px: int
    data: list[Json]
    layout: Json
    arms: bool = True  # drawn in the arms' colours: the page adds a legend


def axis(unit: Unit | None, **more: Any) -> Json:
    """A quiet axis in `unit` (None: the ticks are given)."""
    formats: dict[Unit | None, Json] = {
        "s": {"tickformat": "~s", "ticksuffix": "s", "hoverformat": ".3s"},
        "ratio": {"tickformat": ".0%", "hoverformat": ".1%"},
    }
    plain: Json = {"tickformat": ",~g", "hoverformat": ",.4~g"} if unit is not None else {}
    quiet = {
        "gridcolor": "var(--line)",
        "zeroline": False,
        "linecolor": "var(--line)",
        "ticks": "",
        "automargin": True,
        "fixedrange": True,
    }
    return quiet | formats.get(unit, plain) | more


def layout(**more: Any) -> Json:
    """What all figures share: transparent, the page's font, no legend of their own."""
    shared: Json = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "var(--muted)"},
        "hoverlabel": {"bgcolor": "var(--card)", "bordercolor": "var(--line)", "font": {"color": "var(--ink)"}},
        "margin": {"l": 8, "r": 12, "t": 12, "b": 8},
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": False,
    }
    return shared | more


def safe(name: str) -> str:
    """A name as plotly.js shows it literally: it reads a few HTML tags in any text."""
    return html.escape(words.plain(name), quote=False)


def color_of(report: Report, arm: str) -> str:
    """The arm's colour; Okabe and Ito's blue and orange, told apart by everybody."""
    return "var(--base)" if arm == report.base else "var(--test)"


def dash_of(report: Report, arm: str) -> str:
    """The arm's line: solid for the base, dashed for the test, so that grey prints still tell."""
    return "solid" if arm == report.base else "6px,2px"
