import msgspec
import pytest
from hypothesis import given, strategies as st
from report_example import comparison
from report_variants import failures, long_names, unknown_facts

from loadgen.quantities import Unit
from loadgen.records import Check, Estimate, StageSpec
from loadgen.report import rows, words


@pytest.mark.parametrize(
    ("value", "written"), [(None, "unknown"), (1.36, "1.36×"), (0.146, "0.15×"), (0.027, "0.027×"), (12.34, "12.3×")]
)
def test_ratio(value: float | None, written: str) -> None:
    assert words.ratio_text(value) == written


@pytest.mark.parametrize(
    ("estimate", "unit", "written"),
    [
        (Estimate(center=401.2, lo=378.0, hi=425.0), "tokens_per_s", "401 tok/s (378–425)"),
        (Estimate(center=1.02, lo=0.98, hi=1.06), "s", "1.02 s (980 ms–1.06 s)"),
        (Estimate(center=0.0005, lo=-0.0001, hi=0.0011), "s", "500 µs (-100 µs to 1.1 ms)"),
        (Estimate(center=30.0, lo=28.0, hi=32.0), "count", "30 (28–32)"),
        (Estimate(center=3.0), "count", "3"),
        (Estimate(center=None), "s", "unknown"),
    ],
)
def test_interval(estimate: Estimate, unit: Unit, written: str) -> None:
    assert words.with_interval(estimate, unit) == written


def test_ratio_without_an_interval_claims_none() -> None:
    assert words.ratio_interval(Estimate(center=1.2)) == "1.20×"
    assert words.ratio_interval(Estimate(center=None)) == "–"


@given(st.text())
def test_plain_is_one_line_without_controls(name: str) -> None:
    shown = words.plain(name)
    assert shown.isprintable() or not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in shown)
    assert "\n" not in shown
    assert len(shown) == len(name)


@pytest.mark.parametrize(
    ("stage", "written"),
    [
        (StageSpec(name="a", role="saturated", concurrency=32), "32 at a time"),
        (StageSpec(name="a", role="open_loop", rate_per_s=2.5), "at 2.5 req/s"),
        (StageSpec(name="a", role="open_loop", speed=2.0), "at the trace's own times, 2x as fast"),
        (StageSpec(name="a", role="open_loop", speed=1.0), "at the trace's own times"),
        (StageSpec(name="a", role="open_loop"), "open loop"),
    ],
)
def test_how_sent(stage: StageSpec, written: str) -> None:
    assert words.how_sent(stage) == written


def test_check_signs_differ_without_colour() -> None:
    signs = {words.check_sign(Check(name="x", passed=passed, figure=""))[:2] for passed in (True, False, None)}
    assert len({sign for sign, _ in signs}) == len({word for _, word in signs}) == 3


@pytest.mark.parametrize(
    ("quantity", "written"), [("ttft", "TTFT"), ("itl_s", "ITL"), ("running", "running"), ("ttft_p50_s", "TTFT p50")]
)
def test_labels_of_curves(quantity: str, written: str) -> None:
    assert words.label(quantity) == written


def test_long_arm_names_become_letters_in_the_order() -> None:
    assert "(A B B A A B B A, A = base)" in words.blocks_line(long_names())


def test_rows_have_no_verdict_where_no_direction_is_better() -> None:
    report = comparison()
    shown = {row.quantity: row.verdict for row in rows.stage_rows(report, report.stages[1], detail=True)}
    assert shown["output_tokens_per_s"] == "better"
    assert shown["kv_usage_peak_ratio"] is None


def test_summaries_fill_rows_that_were_not_compared() -> None:
    report = msgspec.structs.replace(comparison(), differences=())
    row = rows.stage_rows(report, report.stages[1])[0]
    assert (row.base, row.test, row.ratio, row.verdict) == ("411 tok/s", "559 tok/s", "", None)


def test_notes_say_what_could_not_have_been_seen() -> None:
    report = comparison()
    told = rows.stage_notes(rows.stage_rows(report, report.stages[0]))
    assert told == [
        "none shown: effects below 1.11× would not have been seen with these blocks.",
        "cannot tell (ITL p99): about 9 blocks per arm would decide.",
    ]


def test_a_detectable_ratio_below_one_is_an_effect_of_the_same_size() -> None:
    report = comparison()
    halved = tuple(
        msgspec.structs.replace(d, detectable_ratio=0.5 if d.quantity == "itl_p50_s" else d.detectable_ratio)
        for d in report.differences
    )
    report = msgspec.structs.replace(report, differences=halved)
    assert "below 1.11–2.00×" in rows.stage_notes(rows.stage_rows(report, report.stages[0]))[0]


def test_unequal_requests_are_counted_by_arm() -> None:
    report = failures()
    assert rows.stage_requests(report, report.stages[1]) == (
        "bf16: 256 of 256 ok, 0 failed, 0 not sent; fp8: 190 of 256 ok, 11 failed, 55 not sent"
    )


def test_facts_mark_what_differs_and_never_guess() -> None:
    known = {fact.label: fact for fact in rows.facts(comparison(), detail=True)}
    assert known["KV capacity"].differs
    assert known["KV capacity"].extra == "2.00×"
    assert not known["engine"].differs
    unknown = {fact.label: fact.values for fact in rows.facts(unknown_facts(), detail=True)}
    assert unknown["KV capacity"] == unknown["attention backend"] == unknown["prefix caching"] == ("unknown", "unknown")
    assert unknown["URL"] == ("http://10.0.0.7:8000", "http://10.0.0.7:8000")


def noted(quantity: str, note: str) -> list[str]:
    report = comparison()
    with_note = tuple(
        msgspec.structs.replace(d, note=note) if quantity in ("all", d.quantity) else d for d in report.differences
    )
    return rows.stage_notes(
        rows.stage_rows(msgspec.structs.replace(report, differences=with_note), report.stages[1]), detail=False
    )


def test_a_note_on_every_row_is_said_once() -> None:
    assert noted("all", "not compared: the work differs") == ["not compared: the work differs"]


def test_a_note_on_one_row_names_it() -> None:
    assert noted("ttft_p50_s", "the client was late") == ["TTFT p50: the client was late"]


def test_notes_that_say_what_more_blocks_would_show_are_summed_up_save_in_detail() -> None:
    report = comparison()
    quiet = tuple(
        msgspec.structs.replace(d, note="4 blocks would have shown 1.11x", blocks_needed=23) for d in report.differences
    )
    shown = rows.stage_rows(msgspec.structs.replace(report, differences=quiet[:1]), report.stages[0])
    assert rows.stage_notes(shown) == [
        "none shown: effects below 1.11× would not have been seen with these blocks. "
        "If the effects seen are real, up to 23 blocks per arm would show them."
    ]
    assert "4 blocks would have shown 1.11x" in rows.stage_notes(shown, detail=True)


def test_a_headline_names_its_stage_where_several_have_its_role() -> None:
    report = comparison()
    first, last = report.headlines
    assert words.headline_title(report, last) == "Saturated"
    both = msgspec.structs.replace(report, headlines=(msgspec.structs.replace(first, role="saturated"), last))
    assert [words.headline_title(both, one) for one in both.headlines] == ["Saturated, one", "Saturated, full"]
