"""Maps over context and concurrency: what is decided, where the break-even stands, and that cells drown no report."""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from loadgen.analysis import folded, grid
from loadgen.analysis.judge import judge
from loadgen.emulator.arm import emulated
from loadgen.emulator.profile import NoiseKeys, load
from loadgen.experiment.order import order
from loadgen.experiment.simulate import simulated
from loadgen.records import ArmSpec, BreakEven, Cell, Check, Estimate, ExperimentManifest, Report, Verdict
from loadgen.workload import plan as plans, scenario

QUANTITY = "output_tokens_per_s"


def cell(context: int, ratio: float, verdict: Verdict, spread: float = 0.02) -> Cell:
    return Cell(
        stage=f"{context}x1",
        context_tokens=context,
        concurrency=1,
        base=Estimate(center=100.0, n=4),
        test=Estimate(center=100.0 * ratio, n=4),
        ratio=Estimate(center=ratio, lo=ratio * (1 - spread), hi=ratio * (1 + spread), n=4),
        verdict=verdict,
    )


def row(*cells: tuple[int, float, Verdict], quantity: str = QUANTITY) -> BreakEven:
    return grid.break_even(quantity, [cell(*one) for one in cells])


def test_a_row_that_turns_says_where() -> None:
    found = row((100, 0.9, "worse"), (400, 1 / 0.9, "better"), (1_600, 1.3, "better"))
    (crossing,) = found.contexts
    assert crossing.center == pytest.approx(250)  # half way, as 0.9 and 1 / 0.9 are equally far from 1
    assert crossing.lo is not None
    assert crossing.hi is not None
    assert crossing.lo < 250 < crossing.hi
    assert (found.shortest, found.longest) == ("worse", "better")
    assert found.said.startswith("worse below 250 tokens (")
    assert found.said.endswith("better above")


def test_undecided_cells_bend_the_line_and_give_no_side() -> None:
    found = row((100, 0.8, "worse"), (400, 0.99, "no difference shown"), (1_600, 1.2, "better"))
    (crossing,) = found.contexts
    assert 400 < (crossing.center or 0) < 500
    noisy = row((100, 1.01, "no difference shown"), (400, 0.8, "worse"), (1_600, 0.7, "worse"))
    assert noisy.contexts == ()
    assert noisy.said == "worse wherever decided (100 not decided)"
    open_row = row((100, 1.01, "no difference shown"), (400, 0.99, "cannot tell"))
    assert (open_row.shortest, open_row.longest, open_row.said) == (None, None, "not decided at any context")
    assert row((100, 1.1, "better"), (400, 1.2, "better")).said == "better at all contexts"


def test_a_row_may_turn_twice_and_the_other_way_round() -> None:
    found = row((100, 1.2, "better"), (400, 0.8, "worse"), (1_600, 1.2, "better"))
    assert len(found.contexts) == 2
    assert found.said.startswith("better below ")
    assert "worse up to" in found.said
    latency = row((100, 1.1, "worse"), (400, 0.9, "better"), quantity="itl_p50_s")
    assert (latency.shortest, latency.longest) == ("worse", "better")
    assert latency.contexts[0].center == pytest.approx(100 + 300 * math.log(1.1) / math.log(1.1 / 0.9))


steps = st.lists(st.floats(0.3, 3.0).filter(lambda ratio: abs(ratio - 1) > 0.03), min_size=2, max_size=7)


@given(ratios=steps)
def test_crossings_stand_between_the_cells_that_say_opposite_things(ratios: Sequence[float]) -> None:
    cells = [(100 * 4**place, ratio, "better" if ratio > 1 else "worse") for place, ratio in enumerate(ratios)]
    found = row(*cells)  # type: ignore[arg-type]
    turns = [place for place in range(len(ratios) - 1) if (ratios[place] > 1) != (ratios[place + 1] > 1)]
    assert len(found.contexts) == len(turns)
    for crossing, place in zip(found.contexts, turns, strict=True):
        assert crossing.center is not None
        assert 100 * 4**place <= crossing.center <= 100 * 4 ** (place + 1)
        if crossing.lo is not None and crossing.hi is not None:
            assert crossing.lo <= crossing.center * 1.000001
            assert crossing.center <= crossing.hi * 1.000001


GRID = """
name: planted
seed: 3
workload: {max_input_tokens: 60000}
stages: [{name: one-stream, concurrency: 1, requests: 8, input_tokens: {range: [500, 16000]}, output_tokens: 64}]
grid: {contexts: [1000, 3000, 6000, 12000], concurrency: [1, 4], output_tokens: 64}
"""


@cache
def planted(step: float = 0.0) -> Report:
    """Two arms whose one-stream lines are planted to cross at 7,010 tokens of context."""
    built = plans.build(scenario.parse(GRID, Path("s.yaml")))
    profile = load("h100-llama3.1-8b").model_copy(update={"noise": NoiseKeys(step=step, start=step / 10)})
    arms = tuple(
        ArmSpec(name=name, engine="emulator", flags={"kv-cache-dtype": dtype})
        for name, dtype in (("bf16", "bfloat16"), ("fp8", "fp8"))
    )
    manifest = ExperimentManifest(
        loadgen="0",
        command="loadgen simulate planted",
        scenario="planted",
        scenario_text=GRID,
        plan_digest=built.digest,
        arms=arms,
        order=order(2, 3),
        restart="each-block",
        started_at="2026-01-01T00:00:00+00:00",
    )
    return judge(simulated(manifest, built, [emulated(profile, arm.flags) for arm in arms], seed=1))


def test_the_planted_break_even_comes_out_of_the_map() -> None:
    report = planted(0.001)
    output, latency = report.maps
    assert (output.quantity, latency.quantity) == grid.MAPPED
    assert latency.contexts == (1_000, 3_000, 6_000, 12_000)
    assert latency.concurrency == (1, 4)
    one, four = latency.break_even
    # ITL is at a context of prompt + some 32 tokens; at four in flight the cost per step is shared by four contexts.
    assert one.contexts[0].center == pytest.approx(7_010 - 32, rel=0.02)
    assert four.contexts[0].center == pytest.approx(7_010 / 4 - 32, rel=0.12)
    assert {cell.verdict for cell in latency.cells} == {"better", "worse"}
    assert [cell.stage for cell in latency.cells][:2] == ["1000x1", "3000x1"]


def test_a_grid_has_one_answer_and_no_curves() -> None:
    report = planted(0.001)
    assert [(one.role, one.stage) for one in report.headlines] == [("one_stream", "one-stream"), ("grid", "grid")]
    said = report.headlines[1]
    better, worse = (sum(cell.verdict == verdict for cell in report.maps[0].cells) for verdict in ("better", "worse"))
    assert said.verdict == "trade-off"
    assert f"better output throughput in {better} of 8 cells, worse in {worse}" in said.sentence
    assert {curve.stage for curve in report.curves} == {"one-stream"}
    assert len(report.innocence) <= 12
    assert len(report.traffic) == 2
    assert len(report.warnings) <= 3
    assert report.decomposition is not None
    assert report.decomposition.share_above is None, "a grid is nobody's traffic"
    finding = next(one for one in report.findings if one.cause == "short context")
    assert finding.verdict == "not observable"


def test_equal_arms_have_an_undecided_map() -> None:
    report = planted(0.05)
    verdicts = [cell.verdict for cell in report.maps[0].cells]
    single = [one.verdict for one in report.differences if one.quantity == QUANTITY and one.stage[0].isdigit()]
    assert sum(one in ("better", "worse") for one in verdicts) <= sum(one in ("better", "worse") for one in single)
    assert "no difference shown" in verdicts


def test_lines_of_cells_are_told_once() -> None:
    cells = {"1x1", "2x1", "3x1"}
    lines = ["1x1: waited 3.5 s", "2x1: waited 4 s", "other: waited 9 s", "3x1: failed", "bf16: odd", "bf16: odd 2"]
    assert folded.lines(lines, cells) == (
        "1x1: waited 3.5 s (and likewise in 2x1)",
        "other: waited 9 s",
        "3x1: failed",
        "bf16: odd",
        "bf16: odd 2",
    )
    many = {f"{number}x1" for number in range(9)}
    (line,) = folded.lines([f"{name}: late" for name in sorted(many)], many)
    assert line == "0x1: late (and likewise in 8 more cells of the grid)"


def test_checks_of_cells_are_told_once_and_failures_apart() -> None:
    def check(name: str, passed: bool | None) -> Check:
        return Check(name=name, passed=passed, figure=f"figure of {name}")

    found = folded.checks(
        [check("1x1: lag", True), check("one: lag", True), check("2x1: lag", False), check("3x1: lag", True)],
        {"1x1", "2x1", "3x1"},
    )
    assert [(one.name, one.passed, one.figure) for one in found] == [
        ("grid: lag", True, "2 cells, such as 1x1: figure of 1x1: lag"),
        ("one: lag", True, "figure of one: lag"),
        ("grid: lag", False, "2x1: figure of 2x1: lag"),
    ]
