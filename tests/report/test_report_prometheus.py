from collections import defaultdict

import msgspec
import pytest
import report_golden
from prometheus_client.parser import text_string_to_metric_families
from report_example import comparison
from report_variants import EVIL, VARIANTS, hostile, unknown_facts, virtual_time

from loadgen.records import Report
from loadgen.report import as_prometheus


def samples(report: Report) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = defaultdict(dict)
    for family in text_string_to_metric_families(as_prometheus.render(report)):
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            assert key not in found[sample.name], "the same series twice"
            found[sample.name][key] = sample.value
    return found


@pytest.mark.parametrize("name", VARIANTS)
def test_every_report_is_a_valid_exposition(name: str) -> None:
    text = as_prometheus.render(VARIANTS[name]())
    families = list(text_string_to_metric_families(text))
    assert families
    assert all(family.name.startswith("loadgen_") and family.documentation for family in families)
    assert len({family.name for family in families}) == len(families)
    assert text.endswith("\n")


def test_prometheus_is_as_agreed() -> None:
    report_golden.check("report_comparison.prom", as_prometheus.render(comparison()))


@pytest.mark.parametrize(
    ("quantity", "name"),
    [
        ("ttft_p50_s", "loadgen_ttft_p50_seconds"),
        ("output_tokens_per_s", "loadgen_output_tokens_per_second"),
        ("goodput_per_s", "loadgen_goodput_per_second"),
        ("kv_usage_peak_ratio", "loadgen_kv_usage_peak_ratio"),
        ("preemptions", "loadgen_preemptions"),
    ],
)
def test_names_are_in_base_units(quantity: str, name: str) -> None:
    assert as_prometheus.metric_name(quantity) == name


def test_values_are_those_of_the_report() -> None:
    found = samples(comparison())
    where = {"scenario": "kv-demo", "stage": "full", "arm": "fp8"}
    key = tuple(sorted(where.items()))
    assert found["loadgen_ttft_p50_seconds"][key] == 1.04
    assert found["loadgen_output_tokens_per_second_vs_base_ratio"][key] == 1.36
    assert found["loadgen_output_tokens_per_second_vs_base_ratio_lower"][key] == 1.28
    assert found["loadgen_report_started_timestamp_seconds"][(("scenario", "kv-demo"),)] == 1796047331


def test_exactly_one_verdict_holds_for_each_stage() -> None:
    found = samples(comparison())["loadgen_output_tokens_per_second_verdict"]
    held = {(dict(key)["stage"], dict(key)["verdict"]) for key, value in found.items() if value}
    assert held == {("one", "no difference shown"), ("full", "better")}
    assert len(found) == 8


def test_what_is_not_known_is_left_out() -> None:
    report = unknown_facts()
    report = msgspec.structs.replace(report, summaries=(), started_at="at some time")
    found = samples(report)
    assert "loadgen_preemptions_vs_base_ratio" not in found
    assert "loadgen_kv_capacity_tokens" not in found
    assert "loadgen_report_started_timestamp_seconds" not in found
    assert {dict(key)["check"] for key in found["loadgen_check_passed"]}.isdisjoint({"backend confirmed"})


def test_labels_survive_quotes_and_line_ends() -> None:
    arms = {dict(key)["arm"] for key in samples(hostile())["loadgen_blocks"]}
    assert arms == {EVIL, 'fp8"\\\n\x1b[31m'}


def test_virtual_time_is_a_series_of_its_own_with_the_profile() -> None:
    found = samples(virtual_time())
    (labels,) = {key for key in found["loadgen_report_virtual_time"] if ("arm", "fp8") in key}
    assert ("profile", "h100-llama3.1-8b") in labels
    assert set(found["loadgen_report_simulated"].values()) == {1.0}
    assert "loadgen_report_virtual_time" not in samples(comparison())
