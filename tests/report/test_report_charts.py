import json
from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest
from report_example import comparison
from report_variants import too_few_blocks, unknown_facts

from loadgen.records import Curve, Decomposition, Estimate, Report
from loadgen.report import charts, curves, figure


def with_decomposition(**changes: object) -> Report:
    report = comparison()
    assert report.decomposition is not None
    found: Decomposition = msgspec.structs.replace(report.decomposition, **changes)
    return msgspec.structs.replace(report, decomposition=found)


def test_forest_draws_each_judged_quantity_with_its_interval() -> None:
    report = comparison()
    chart = charts.forest(report, report.stages[1])
    assert chart is not None
    order, *traces = chart.data
    assert order["y"] == ["output ↑", "goodput ↑", "TTFT p50 ↓", "TTFT p99 ↓", "ITL p50 ↓", "ITL p99 ↓"]
    better = traces[0]
    at = better["y"].index("output ↑")
    assert better["x"][at] + better["error_x"]["array"][at] == pytest.approx(1.45)
    assert better["x"][at] - better["error_x"]["arrayminus"][at] == pytest.approx(1.28)
    assert chart.layout["shapes"][0]["x0"] == 1.0
    assert len({trace["marker"]["symbol"] for trace in traces}) == 4


def test_forest_without_intervals_draws_points() -> None:
    report = too_few_blocks()
    chart = charts.forest(report, report.stages[0])
    assert chart is not None
    assert all(end == 0 for trace in chart.data[1:] for end in trace["error_x"]["array"])


def test_nothing_compared_draws_no_forest() -> None:
    report = msgspec.structs.replace(comparison(), differences=())
    assert charts.forest(report, report.stages[0]) is None


def test_context_draws_points_lines_and_break_even() -> None:
    chart = charts.context(comparison())
    assert chart is not None
    assert [trace["mode"] for trace in chart.data] == ["markers", "lines", "markers", "lines"]
    line, band = chart.layout["shapes"]
    assert line["x0"] == 693.0
    assert (band["x0"], band["x1"]) == (310.0, 1240.0)
    fit = chart.data[1]
    assert fit["y"][1] == pytest.approx(0.00861 + 2.91e-6 * fit["x"][1])


@pytest.mark.parametrize("center", [None, -50.0, 1e6])
def test_a_break_even_outside_the_picture_is_not_drawn(center: float | None) -> None:
    chart = charts.context(with_decomposition(break_even_tokens=Estimate(center=center)))
    assert chart is not None
    assert chart.layout["shapes"] == []


def test_no_decomposition_no_chart() -> None:
    assert charts.context(too_few_blocks()) is None


def test_time_panels_share_one_axis_and_do_not_overlap() -> None:
    report = comparison()
    chart = curves.over_time(report, report.stages[1])
    assert chart is not None
    assert {trace["yaxis"] for trace in chart.data} == {"y", "y2", "y3", "y4"}
    assert all("xaxis" not in trace for trace in chart.data)
    domains = sorted(tuple(value["domain"]) for key, value in chart.layout.items() if key.startswith("yaxis"))
    assert all(low[1] <= high[0] for low, high in pairwise(domains))
    assert len(chart.data) == 8 * 4
    assert curves.over_time(report, report.stages[0]) is None


def test_an_unknown_gauge_gets_a_panel_of_its_own() -> None:
    extra = Curve(quantity="swapped", kind="time", stage="full", arm="fp8", block=1, x=(0.0, 1.0), y=(0.0, 2.0))
    report = msgspec.structs.replace(comparison(), curves=(*comparison().curves, extra))
    chart = curves.over_time(report, report.stages[1])
    assert chart is not None
    assert "yaxis5" in chart.layout


def test_wide_distributions_are_drawn_on_a_log_axis_with_labelled_ticks() -> None:
    report = comparison()
    ttft, itl = curves.distributions(report, report.stages[1])
    assert ttft.layout["xaxis"]["type"] == "log"
    assert ttft.layout["xaxis"]["ticktext"][:3] == ["500 ms", "1 s", "2 s"]
    assert "type" not in itl.layout["xaxis"]
    assert [trace["line"]["dash"] for trace in ttft.data] == ["solid", "6px,2px"]


def test_a_distribution_that_touches_zero_stays_linear() -> None:
    zero = Curve(quantity="ttft", kind="quantile", stage="one", arm="bf16", block=0, x=(0.0, 1.0), y=(0.0, 9.0))
    report = msgspec.structs.replace(comparison(), curves=(zero,))
    (chart,) = curves.distributions(report, report.stages[0])
    assert "type" not in chart.layout["xaxis"]


@pytest.mark.parametrize("make", [comparison, unknown_facts])
def test_figures_are_plain_json(make: Callable[[], Report]) -> None:
    report = make()
    for stage in report.stages:
        for chart in (charts.forest(report, stage), curves.over_time(report, stage), charts.context(report)):
            if chart is not None:
                json.dumps([chart.data, chart.layout], allow_nan=False)


def test_names_are_escaped_for_plotly() -> None:
    assert figure.safe("<b>a&b</b>\n") == "&lt;b&gt;a&amp;b&lt;/b&gt; "
