"""What every page shares: one HTML file that needs no network, with style, script, plotly.js and figures inlined.

Everything named by a user or a server goes through `element`, which escapes; a content security policy forbids
the page every request.
"""

from collections.abc import Callable, Iterable
from importlib.resources import files
from xml.etree.ElementTree import Element

import msgspec
from plotly.offline import get_plotlyjs

from loadgen.report.element import document, element, raw, script_safe
from loadgen.report.figure import Chart

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"


class Figures:
    """A page's charts in order: numbers their places and keeps what the script will draw there.

    `legend`: what stands beside the titles of charts in the arms' colours.
    """

    def __init__(self, legend: Callable[[], Element] | None = None) -> None:
        self._legend = legend
        self.drawn: dict[str, dict[str, object]] = {}

    def place(self, chart: Chart | None) -> Element | None:
        """The element that the script draws `chart` in, with its title and legend."""
        if chart is None:
            return None
        name = f"chart-{len(self.drawn) + 1}"
        self.drawn[name] = {"data": chart.data, "layout": chart.layout}
        style = f"height: {chart.height_px}px"
        legend = self._legend() if chart.arms and self._legend else None
        return element(
            "figure",
            element("figcaption", element("strong", chart.title), legend),
            element("div", id=name, class_="chart", style=style, role="img", aria_label=chart.title),
            element("p", chart.caption, class_="caption") if chart.caption else None,
        )

    def grid(self, found: Iterable[Chart | None]) -> Element | None:
        """Charts side by side where there is room; None without any."""
        placed = [figure for figure in map(self.place, found) if figure is not None]
        return element("div", *placed, class_="grid") if placed else None


def whole(title: str, body: Element, figures: Figures) -> str:
    """The page's source: about 5 MB with figures, nearly all of it plotly.js."""
    if figures.drawn:
        body.append(json_script("figures", msgspec.json.encode(figures.drawn).decode()))
        body.append(raw("script", get_plotlyjs()))
    body.append(raw("script", asset("page.js")))
    return document(element("html", _head(title), body, lang="en"))


def section(name: str, title: str, body: Element) -> Element:
    """A part of the page that can be linked to."""
    return element("section", element("h2", title, id=f"{name}-title"), body, id=name, aria_labelledby=f"{name}-title")


def json_script(name: str, json: str) -> Element:
    """Data for the page's scripts, or for whoever takes it out of the page."""
    return raw("script", script_safe(json), type="application/json", id=name)


def _head(title: str) -> Element:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        raw("style", asset("page.css")),
    )


def asset(name: str) -> str:
    """A file of this room that goes into the page."""
    return files("loadgen.report").joinpath(name).read_text("utf-8")
