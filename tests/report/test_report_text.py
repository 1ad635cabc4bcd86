import io
import re

import msgspec
import pytest
import report_golden
from report_example import comparison
from report_variants import VARIANTS, hostile, long_names, one_arm, virtual_time
from rich.cells import cell_len
from rich.console import Console

from loadgen.records import Report
from loadgen.report import as_text


def rendered(report: Report, columns: int, *, detail: bool = False, color: bool = False) -> str:
    page = io.StringIO()
    console = Console(
        file=page, width=columns, force_terminal=color, color_system="standard" if color else None, legacy_windows=False
    )
    as_text.render(report, console, detail=detail)
    return page.getvalue()


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", VARIANTS)
def test_text_is_as_agreed(name: str, columns: int) -> None:
    report_golden.check(f"report_{name}_{columns}.txt", rendered(VARIANTS[name](), columns))


def test_text_in_detail_is_as_agreed() -> None:
    report_golden.check("report_comparison_detail_120.txt", rendered(comparison(), 120, detail=True))


def test_a_narrow_console_loses_no_letter_of_the_verdict() -> None:
    report = comparison()
    said = re.sub(r"\s", "", rendered(report, 20))
    for headline in report.headlines:
        assert re.sub(r"\s", "", headline.sentence) in said


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("name", VARIANTS)
def test_no_line_is_wider_than_the_console_or_ends_in_blanks(name: str, columns: int) -> None:
    for line in rendered(VARIANTS[name](), columns, detail=True).splitlines():
        assert cell_len(line) <= columns
        assert line == line.rstrip()


@pytest.mark.parametrize("name", VARIANTS)
def test_colour_adds_nothing_but_colour(name: str) -> None:
    coloured = rendered(VARIANTS[name](), 100, color=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == rendered(VARIANTS[name](), 100)


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    page = io.StringIO()
    as_text.render(comparison(), Console(file=page, width=100, force_terminal=True))
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", page.getvalue())
    assert "DOES NOT PAY" in page.getvalue()


def test_the_answer_stands_in_the_first_ten_lines() -> None:
    top = "\n".join(rendered(comparison(), 80).splitlines()[:10])
    assert "One stream:  ✗ DOES NOT PAY" in top
    assert "Saturated:   ± TRADE-OFF" in top


def test_names_cannot_act_on_the_terminal() -> None:
    shown = rendered(hostile(), 120, detail=True)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)
    assert "[bold red]" in shown


def test_long_names_are_folded_not_cut() -> None:
    letters = re.sub(r"\s", "", rendered(long_names(), 200))
    assert "bfloat16-flashinfer-0.6.1-hopper-sxm-pinned" in letters
    assert "…" not in letters


def test_one_arm_shows_figures_and_claims_nothing() -> None:
    shown = rendered(one_arm(), 80)
    assert "nothing to compare" in shown
    assert "411 tok/s" in shown
    assert not re.search(r"better|worse|ratio|none shown", shown)


def test_a_simulated_report_says_so_at_the_top() -> None:
    simulated = msgspec.structs.replace(comparison(), simulated=True)
    assert rendered(simulated, 80).startswith("SIMULATED: ")


def test_virtual_time_is_told_at_the_top_and_at_the_end_and_no_client_is_blamed() -> None:
    shown = rendered(virtual_time(), 120)
    told = "SIMULATED: no server ran; these figures follow from profile h100-llama3.1-8b."
    assert shown.startswith(told)
    assert shown.splitlines()[-1].strip() == told
    assert "No client existed" in shown
    assert "not watched" not in shown
    assert "read back" not in shown
    assert "a vendor's figures" in rendered(virtual_time(), 120, detail=True)
