"""The report as one HTML file that needs no network: style, script, plotly.js, figures and the record are inlined.

Everything named by a user or a server goes through `element`, which escapes; a content security policy forbids
the page every request.
"""

from collections.abc import Iterable
from importlib.resources import files
from xml.etree.ElementTree import Element

import msgspec
from plotly.offline import get_plotlyjs

from loadgen.records import Report
from loadgen.report import as_json, charts, curves, rows, sections, words
from loadgen.report.element import Content, document, element, raw, script_safe
from loadgen.report.figure import Chart

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
TITLES = {
    "causes": "Why: four causes",
    "checklist": "Checklist of a fair comparison",
    "decode-step": "Decode step of one stream",
    "unintended": "Unintended differences between the arms",
    "failures": "Failed requests",
    "client": "Was the client innocent?",
}
DIRECTIONS = "↑ more is better, ↓ less is better. ▲\u00a0better, ▼\u00a0worse, ○\u00a0none shown, ×\u00a0cannot tell."


class _Figures:
    """The page's charts in order: numbers their places and keeps what the script will draw there."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.drawn: dict[str, dict[str, object]] = {}

    def place(self, chart: Chart | None) -> Element | None:
        """The element that the script draws `chart` in, with its title and legend."""
        if chart is None:
            return None
        name = f"chart-{len(self.drawn) + 1}"
        self.drawn[name] = {"data": chart.data, "layout": chart.layout}
        style = f"height: {chart.height_px}px"
        return element(
            "figure",
            element("figcaption", element("strong", chart.title), self._legend() if chart.arms else None),
            element("div", id=name, class_="chart", style=style, role="img", aria_label=chart.title),
            element("p", chart.caption, class_="caption") if chart.caption else None,
        )

    def grid(self, found: Iterable[Chart | None]) -> Element | None:
        """Charts side by side where there is room; None without any."""
        placed = [figure for figure in map(self.place, found) if figure is not None]
        return element("div", *placed, class_="grid") if placed else None

    def _legend(self) -> Element:
        names = [("base", self.report.base), *([("test", self.report.test)] if self.report.test else [])]
        return element("span", *(element("span", name, class_=f"key {side}") for side, name in names), class_="legend")


def render(report: Report) -> str:
    """The whole page, about 5 MB, nearly all of it plotly.js."""
    figures = _Figures(report)
    found = [(name, title, body) for name, title, body in _sections(report, figures) if body is not None]
    titles = TITLES | {"arms": words.servers(report)}
    links = (element("li", element("a", title, href=f"#{name}")) for name, title, _ in found)
    body = element(
        "body",
        _band(report),
        _header(report),
        element("nav", element("ul", *links), aria_label="Contents"),
        element("main", *(_section(name, titles.get(name, title), body) for name, title, body in found)),
        element("footer", element("p", f"loadgen {report.loadgen}, report schema {report.schema}")),
        _json_script("report-data", as_json.render(report).decode()),
    )
    if figures.drawn:
        body.append(_json_script("figures", msgspec.json.encode(figures.drawn).decode()))
        body.append(raw("script", get_plotlyjs()))
    body.append(raw("script", _asset("page.js")))
    return document(element("html", _head(report), body, lang="en"))


def _sections(report: Report, figures: _Figures) -> Iterable[tuple[str, str, Element | None]]:
    yield "verdict", "Verdict", sections.verdict(report)
    yield "differences", "Differences" if report.test else "Figures", _differences(report, figures)
    yield "causes", "Causes", sections.causes(report)
    yield "checklist", "Checklist", sections.checks(report.checklist)
    yield "decode-step", "Decode step", _joined(sections.decode_step(report), figures.place(charts.context(report)))
    yield "over-time", "Over time", figures.grid(_over_time(report))
    yield (
        "distributions",
        "Distributions",
        figures.grid(c for s in report.stages for c in curves.distributions(report, s)),
    )
    yield "arms", "Servers", sections.arms(report)
    yield "unintended", "Unintended", sections.lines(lambda r: r.unintended)(report)
    yield "failures", "Failures", sections.lines(rows.failed_requests)(report)
    yield "client", "Client", sections.client(report)
    yield "reproduce", "Reproduce", sections.reproduce(report)


def _differences(report: Report, figures: _Figures) -> Element | None:
    forest = figures.grid(charts.forest(report, stage) for stage in report.stages)
    said = f"Ratio of {report.test} to {report.base} with its interval. {DIRECTIONS}"
    caption = element("p", said, class_="caption") if forest is not None else None
    return _joined(caption, forest, *(sections.differences(report, stage) for stage in report.stages))


def _over_time(report: Report) -> Iterable[Chart | None]:
    """Stages under load; one stream fills no cache, so it is drawn only where it is all there is."""
    loaded = [stage for stage in report.stages if stage.role != "one_stream"]
    return (curves.over_time(report, stage) for stage in loaded or report.stages)


def _joined(*parts: Content) -> Element | None:
    return element("div", *parts) if any(part is not None for part in parts) else None


def _section(name: str, title: str, body: Element) -> Element:
    return element("section", element("h2", title, id=f"{name}-title"), body, id=name, aria_labelledby=f"{name}-title")


def _header(report: Report) -> Element:
    said = f"{report.scenario}, {report.started_at}, {words.blocks_line(report)}"
    return element("header", element("h1", report.title), element("p", said, class_="caption"))


def _band(report: Report) -> Element | None:
    """What stays in sight wherever the page is read."""
    simulated = words.simulated(report)
    return element("p", simulated, class_="simulated") if simulated else None


def _head(report: Report) -> Element:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"SIMULATED: {report.title}" if report.simulated else report.title),
        raw("style", _asset("page.css")),
    )


def _json_script(name: str, json: str) -> Element:
    return raw("script", script_safe(json), type="application/json", id=name)


def _asset(name: str) -> str:
    return files("loadgen.report").joinpath(name).read_text("utf-8")
