"""The report as one HTML file that needs no network (`page`): figures, tables and the record itself."""

from collections.abc import Iterable
from xml.etree.ElementTree import Element

from loadgen.records import GridMap, Report
from loadgen.report import as_json, charts, curves, maps, rows, sections, words
from loadgen.report.element import Content, element
from loadgen.report.figure import Chart
from loadgen.report.page import Figures, json_script, section, whole

TITLES = {
    "map": "Over context and concurrency",
    "causes": "Why: four causes",
    "checklist": "Checklist of a fair comparison",
    "decode-step": "Decode step of one stream",
    "unintended": "Unintended differences between the arms",
    "failures": "Failed requests",
    "traffic": words.TRAFFIC,
    "client": "Was the client innocent?",
}
DIRECTIONS = "↑ more is better, ↓ less is better. ▲\u00a0better, ▼\u00a0worse, ○\u00a0none shown, ×\u00a0cannot tell."


def render(report: Report) -> str:
    """The whole page, about 5 MB, nearly all of it plotly.js."""
    figures = Figures(lambda: _legend(report))
    found = [(name, title, body) for name, title, body in _sections(report, figures) if body is not None]
    titles = TITLES | {"arms": words.servers(report)}
    links = (element("li", element("a", title, href=f"#{name}")) for name, title, _ in found)
    body = element(
        "body",
        _band(report),
        _header(report),
        element("nav", element("ul", *links), aria_label="Contents"),
        element("main", *(section(name, titles.get(name, title), part) for name, title, part in found)),
        element("footer", element("p", f"loadgen {report.loadgen}, report schema {report.schema}")),
        json_script("report-data", as_json.render(report).decode()),
    )
    return whole(f"SIMULATED: {report.title}" if report.simulated else report.title, body, figures)


def _legend(report: Report) -> Element:
    names = [("base", report.base), *([("test", report.test)] if report.test else [])]
    return element("span", *(element("span", name, class_=f"key {side}") for side, name in names), class_="legend")


def _sections(report: Report, figures: Figures) -> Iterable[tuple[str, str, Element | None]]:
    yield "verdict", "Verdict", sections.verdict(report)
    yield "differences", "Differences" if report.test else "Figures", _differences(report, figures)
    yield "map", "Map", _joined(*(part for one in report.maps for part in _map(report, one, figures)))
    yield "causes", "Causes", sections.causes(report)
    yield "checklist", "Checklist", sections.checks(report.checklist)
    yield "decode-step", "Decode step", _joined(sections.decode_step(report), figures.place(charts.context(report)))
    yield "over-time", "Over time", figures.grid(_over_time(report))
    yield (
        "distributions",
        "Distributions",
        figures.grid(c for s in rows.stages(report) for c in curves.distributions(report, s)),
    )
    yield "arms", "Servers", sections.arms(report)
    yield "unintended", "Unintended", sections.lines(lambda r: r.unintended)(report)
    yield "failures", "Failures", sections.lines(rows.failed_requests)(report)
    yield "traffic", "Traffic", sections.checks(report.traffic)
    yield "client", "Client", sections.client(report)
    yield "reproduce", "Reproduce", sections.reproduce(report)


def _differences(report: Report, figures: Figures) -> Element | None:
    stages = rows.stages(report)
    forest = figures.grid(charts.forest(report, stage) for stage in stages)
    said = f"Ratio of {report.test} to {report.base} with its interval. {DIRECTIONS}"
    caption = element("p", said, class_="caption") if forest is not None else None
    return _joined(caption, forest, *(sections.differences(report, stage) for stage in stages))


def _map(report: Report, found: GridMap, figures: Figures) -> Iterable[Element | None]:
    yield figures.place(maps.heat_map(report, found))
    yield maps.section(report, found)


def _over_time(report: Report) -> Iterable[Chart | None]:
    """Stages under load; one stream fills no cache, so it is drawn only where it is all there is."""
    stages = rows.stages(report)
    loaded = [stage for stage in stages if stage.role != "one_stream"]
    return (curves.over_time(report, stage) for stage in loaded or stages)


def _joined(*parts: Content) -> Element | None:
    return element("div", *parts) if any(part is not None for part in parts) else None


def _band(report: Report) -> Element | None:
    """What stays in sight wherever the page is read."""
    simulated = words.simulated(report)
    return element("p", simulated, class_="simulated") if simulated else None


def _header(report: Report) -> Element:
    said = f"{report.scenario}, {report.started_at}, {words.blocks_line(report)}"
    return element("header", element("h1", report.title), element("p", said, class_="caption"))
