import io
import json

import msgspec
import pytest
from report_grid import grid_maps
from report_variants import grid
from rich.console import Console

from loadgen.records import GridMap
from loadgen.report import as_html, as_text, maps


def chart_of(number: int) -> tuple[GridMap, maps.Chart]:
    report = grid()
    found = report.maps[number]
    return found, maps.heat_map(report, found)


def test_colour_shows_gain_whichever_way_is_better() -> None:
    _, output = chart_of(0)
    _, latency = chart_of(1)
    for chart in (output, latency):
        colours = chart.data[0]
        assert colours["zmin"] == -colours["zmax"]
        assert colours["z"][0][0] < 0 < colours["z"][0][3]
        assert colours["z"][2][2] is None, "it was not measured"
        assert colours["z"][2][3] is None, "it was left out"
    assert latency.data[0]["z"][1][3] < 0


def test_every_cell_is_written_with_its_sign_and_undecided_ones_are_outlined() -> None:
    found, chart = chart_of(0)
    written = chart.data[1]["text"]
    assert len(written) == 11
    assert written[:4] == ["0.97× ▼", "0.98× ▼", "1.001× =", "1.06× ▲"]
    assert written[-1] == "– ?"
    assert len(chart.layout["shapes"]) == sum(cell.verdict in maps.UNDECIDED for cell in found.cells) == 3
    assert "fp8" in chart.caption
    assert "with all 11 cells in view" in chart.caption


def test_the_line_steps_through_the_crossings() -> None:
    found, chart = chart_of(0)
    crossings = [row.contexts for row in found.break_even]
    assert [len(one) for one in crossings] == [1, 1, 0]
    x = chart.data[2]["x"]
    first, second = (maps.place_of(found.contexts, one[0].center or 0.0) for one in crossings[:2])
    assert 1 < first < 3
    assert 0 < second < 1
    assert x == [first, first, second, second, None, None], "the third row is not decided at its shortest context"
    assert chart.data[3]["x"] == [first, second]
    assert chart.data[3]["text"] == [row.said for row in found.break_even[:2]]


def test_rows_that_turn_twice_have_points_and_no_line() -> None:
    found, chart = chart_of(1)
    assert [len(row.contexts) for row in found.break_even] == [1, 2, 0]
    assert chart.data[2]["x"][2:4] == [None, None]
    assert len(chart.data[3]["x"]) == 3


def decided(row: int, verdict: str, found: GridMap) -> GridMap:
    """A copy in which one concurrency has one verdict throughout."""
    streams = found.concurrency[row]
    cells = tuple(
        msgspec.structs.replace(cell, verdict=verdict) if cell.concurrency == streams else cell for cell in found.cells
    )
    rows = list(found.break_even)
    rows[row] = msgspec.structs.replace(rows[row], contexts=(), shortest=verdict, longest=verdict)
    return msgspec.structs.replace(found, cells=cells, break_even=tuple(rows))


@pytest.mark.parametrize(("verdict", "edge"), [("better", -0.5), ("worse", 3.5)])
def test_a_row_on_one_side_has_the_line_at_its_edge(verdict: str, edge: float) -> None:
    report, found = grid(), decided(2, verdict, grid().maps[0])
    assert maps.heat_map(report, found).data[2]["x"][-2:] == [edge, edge]


def test_contexts_between_columns_stand_where_they_belong() -> None:
    assert maps.place_of((256, 1_024), 256) == 0
    assert maps.place_of((256, 1_024), 512) == pytest.approx(0.5)
    assert maps.place_of((256, 1_024), 100) == -0.5
    assert maps.place_of((256, 1_024), 5_000) == 1.5


def test_cells_have_no_tables_of_their_own() -> None:
    page = io.StringIO()
    as_text.render(grid(), Console(file=page, width=100), detail=True)
    assert "256x1" not in page.getvalue()
    assert page.getvalue().count("over context and concurrency") == 2
    source = as_html.render(grid())
    assert "All 11 cells, with intervals" in source
    figures = json.loads(source.partition('id="figures">')[2].partition("</script>")[0].replace("\\u003c", "<"))
    assert sum(trace["type"] == "heatmap" for figure in figures.values() for trace in figure["data"]) == 2


def test_maps_are_plain_json() -> None:
    for number in range(len(grid_maps())):
        _, chart = chart_of(number)
        assert json.loads(json.dumps({"data": chart.data, "layout": chart.layout}, allow_nan=False))
