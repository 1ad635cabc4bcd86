import re
from pathlib import Path

import pytest

from loadgen.errors import UserError
from loadgen.records import Slo
from loadgen.workload import scenario
from loadgen.workload.fields import Quantiles, Range

GOOD = """
name: good
workload: {input_tokens: 100, output_tokens: 10}
stages:
  - {name: a, concurrency: 2, requests: 4}
"""


def complaints(text: str, path: Path = Path("s.yaml")) -> list[str]:
    with pytest.raises(UserError) as caught:
        scenario.parse(text, path)
    assert caught.value.exit_code == 2
    return list(caught.value.complaints)


def edited(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_defaults_and_units_of_a_good_file() -> None:
    text = GOOD + "slo: {ttft: 200ms, tpot: 0.05, e2e: 2m}\nlimit: {requests_per_second: 5}\n"
    loaded = scenario.parse(text, Path("s.yaml"))
    assert (loaded.seed, loaded.repeats, loaded.workload.endpoint) == (1, 4, "completions")
    assert loaded.slo.record() == Slo(ttft_s=0.2, tpot_s=0.05, e2e_s=120.0)
    assert loaded.limit is not None
    assert loaded.limit.requests_per_second == 5


def test_three_forms_of_lengths() -> None:
    table = "input_tokens: {quantiles: {50: 10, 0: 1, 99.9: 80, 100: 90}}, output_tokens: {range: [3, 5]}"
    loaded = scenario.parse(edited("input_tokens: 100, output_tokens: 10", table), Path("s.yaml"))
    assert loaded.workload.input_tokens == Quantiles(quantiles={0: 1, 50: 10, 99.9: 80, 100: 90})
    assert loaded.workload.output_tokens == Range(range=(3, 5))


def test_every_complaint_at_once_each_with_file_line_key_and_value() -> None:
    found = complaints(
        "name: x y\n"
        "repeat: 3\n"
        "workload:\n"
        "  endpoint: complete\n"
        "  input_tokens: {quantiles: {0: 20, 50: 10, 100: 30}}\n"
        "  output_tokens: {rnage: [1, 3]}\n"
        "stages:\n"
        "  - {name: a, concurrency: -3, requests: 4}\n"
        "  - {name: a, concurrency: 3, rate: 5, duration: 1 day}\n"
        "  - {name: b, rate: -1, requests: 3, input_tokens: {range: [9, 3]}}\n"
        "  - {concurrency: 1.5, requests: two}\n"
    )
    known = "name, description, source, seed, repeats, workload, stages, grid, limit, slo"
    assert found == [
        's.yaml:1: name: "x y": should be of letters, digits, dot, dash, underscore, beginning with a letter or digit',
        f"s.yaml:2: repeat: unknown key; did you mean repeats? Known: {known}",
        "s.yaml:4: workload.endpoint: \"complete\": should be 'completions' or 'chat'",
        "s.yaml:5: workload.input_tokens.quantiles: should not fall: quantile 0 is 20 tokens, quantile 50 is 10",
        "s.yaml:6: workload.output_tokens: should be a number of tokens, {range: [64, 256]} or "
        "{quantiles: {50: 128, 100: 900}}",
        "s.yaml:8: stages[0].concurrency: -3: should be at least 1",
        's.yaml:9: stages[1].duration: "1 day": should be a time: seconds (60), or a number with its unit '
        "(250ms, 60s, 2m)",
        's.yaml:9: stages[1].name: "a": should be unique: stages[0] has this name',
        "s.yaml:9: stages[1]: should have only one of concurrency and rate",
        "s.yaml:10: stages[2].input_tokens.range: should be [lowest, highest]: 9 is above 3",
        "s.yaml:10: stages[2].rate: -1: should be greater than 0",
        "s.yaml:11: stages[3].concurrency: 1.5: should be a whole number",
        "s.yaml:11: stages[3].name: missing; required (letters, digits, dot, dash, underscore; unique)",
        's.yaml:11: stages[3].requests: "two": should be a whole number, without quotes or unit',
    ]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("concurrency: 2, ", "", "stages[0]: should have one of concurrency (closed loop), rate"),
        (", requests: 4", "", "stages[0]: should say when it ends: requests, duration, or both"),
        ("requests: 4", "requests: 4, burstiness: 2", "stages[0].burstiness: 2: should stand beside rate only"),
        (
            "concurrency: 2, requests: 4",
            "speed: 2",
            "stages[0].speed: 2: should stand in a scenario with workload.trace",
        ),
        (
            "input_tokens: 100, ",
            "",
            "stages[0].input_tokens: missing; should be given here or as workload.input_tokens",
        ),
        ("output_tokens: 10", "output_tokens: 0", "workload.output_tokens: 0: should be at least 1"),
        (
            "output_tokens: 10",
            "output_tokens: {quantiles: {50: 4, 90: 8}}",
            "should give the quantile 100, the maximum",
        ),
        (
            "output_tokens: 10",
            "output_tokens: 10, max_input_tokens: 99",
            "should go down to workload.max_input_tokens (99)",
        ),
        ("concurrency: 2", 'concurrency: "2"', 'stages[0].concurrency: "2": should be a whole number, without quotes'),
        ("concurrency: 2", "concurrency: true", "stages[0].concurrency: true: should be a whole number"),
        ("concurrency: 2", "concurency: 2", "stages[0].concurency: unknown key; did you mean concurrency?"),
        ("concurrency: 2", "rate: .inf", "stages[0].rate: Infinity: should be a number"),
        ("input_tokens: 100", "input_tokens: {range: [1]}", "workload.input_tokens.range[1]: missing; required"),
        (
            "input_tokens: 100",
            "input_tokens: {range: [1, 2, 3]}",
            "workload.input_tokens.range: should hold two values",
        ),
        ("input_tokens: 100", "input_tokens: {quantiles: {100: 9}}", "quantiles: should hold two values at least"),
        (
            "input_tokens: 100",
            "input_tokens: {range: [1, 2], quantiles: {}}",
            "workload.input_tokens: should be a number",
        ),
        ("input_tokens: 100", "input_tokens: {quantiles: {50: 3, 200: 9}}", "quantiles[200]: 9: should be at most 100"),
        ("- {name: a, concurrency: 2, requests: 4}", "  a: 3", "stages: should be a list"),
        ("name: good", "name: 12", "name: 12: should be text"),
        ("name: good", "nme: good", "name: missing; required (letters, digits, dot, dash, underscore"),
        ("- {name: a, concurrency: 2, requests: 4}", "[]", "stages: empty; should be a list of at least one stage"),
        ("- {name: a, concurrency: 2, requests: 4}", "- 7", "stages[0]: 7: should be a mapping of keys"),
        ("{input_tokens: 100, output_tokens: 10}", "chat", 'workload: "chat": should be a mapping of keys'),
        ("name: good", "name: good\n1: x", "[1]: unknown key"),
        ("requests: 4", f"duration: {'9' * 400}h", 'stages[0].duration: "999'),
        ("requests: 4", "duration: 1e300", "stages[0].duration: 1e+300: should be at most 31622400"),
        ("name: good", "name: good\nslo: {ttft: yes}", 'slo.ttft: "yes": should be a time: seconds'),
    ],
)
def test_one_mistake_one_line(old: str, new: str, told: str) -> None:
    found = complaints(edited(old, new))
    assert any(told in line for line in found), found
    assert all(line.startswith("s.yaml") for line in found)


def test_prompts_above_the_bound_may_be_cut_instead() -> None:
    text = edited("output_tokens: 10", "output_tokens: 10, max_input_tokens: 99, fit: cap")
    assert scenario.parse(text, Path("s.yaml")).workload.fit == "cap"


def test_yaml_is_read_by_the_plain_rules() -> None:
    loaded = scenario.parse(edited("requests: 4", "requests: 1e3").replace("good", "on"), Path("s.yaml"))
    assert loaded.stages[0].requests == 1000
    assert loaded.name == "on"
    assert scenario.parse(edited("requests: 4", "requests: 010"), Path("s.yaml")).stages[0].requests == 10
    assert any('duration: "1:30"' in line for line in complaints(edited("requests: 4", "duration: 1:30")))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: a\nstages: [\n  - x: y\n", "s.yaml:3: not YAML: "),
        ("name: a\n\tb: c\n", "s.yaml:2: not YAML: "),
        ("name: a\nname: b\n", "s.yaml:2: not YAML: key 'name' given twice"),
        ("name: a\n---\nname: b\n", "s.yaml:2: not YAML: expected a single document"),
        ("", "s.yaml: empty; should be a mapping with name, workload and stages"),
        ("- a\n", "s.yaml: a list; should be a mapping"),
        ("seed: " + "9" * 5000, "s.yaml:1: not YAML: '99999999999999999999' is no int"),
        ("a: 1\nseed: !!int abc", "s.yaml:2: not YAML: 'abc' is no int"),
        ("seed: !!bool abc", "s.yaml:1: not YAML: 'abc' is no bool"),
        ("seed: !!timestamp soon", "s.yaml:1: not YAML: could not determine a constructor"),
        ("seed: !!float ''", "s.yaml:1: not YAML: '' is no float"),
        ("limit:\n  requests_per_second: 1" + "0" * 400, "s.yaml:2: not YAML: '10000000000000000000' is no int"),
        ("{a: " * 2000, "s.yaml:1: not YAML: nested too deeply"),
        ("- " * 2000, "s.yaml: nested too deeply"),
        ("name: !!map a", "s.yaml:1: not YAML: expected a mapping node"),
    ],
)
def test_yaml_mistakes_name_their_line(text: str, told: str) -> None:
    (line,) = complaints(text)
    assert line.startswith(told)


def test_a_key_of_several_lines_is_told_in_one() -> None:
    lines = complaints(edited("requests: 4", 'requests: 4, "re\\nquests\\e": 4'))
    assert any(r"re\nquests\x1b: unknown key" in line for line in lines)


def test_thousands_of_mistakes_are_counted_not_told() -> None:
    lines = complaints(GOOD + "".join(f"k{number}: 1\n" for number in range(5_000)))
    assert len(lines) == 101
    assert lines[-1] == "and 4,900 more"


TRACED = """
name: traced
workload: {trace: {path: t.csv}}
stages:
  - {name: replay, speed: 2}
"""


def test_a_trace_is_found_beside_the_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv").write_text("x")
    loaded = scenario.parse(TRACED, tmp_path / "s.yaml")
    assert loaded.workload.trace is not None
    assert loaded.workload.trace.path == tmp_path / "t.csv"
    monkeypatch.setenv("THE_TRACES", str(tmp_path))
    elsewhere = scenario.parse(TRACED.replace("t.csv", '"${THE_TRACES}/t.csv"'), Path("other/s.yaml"))
    assert elsewhere.workload.trace is not None
    assert elsewhere.workload.trace.path == tmp_path / "t.csv"


def test_a_trace_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = complaints(TRACED, tmp_path / "s.yaml")
    assert line == (
        f'{tmp_path}/s.yaml:3: workload.trace.path: "t.csv": no such file: looked for {tmp_path}/t.csv and t.csv'
    )
    for name, why in (("~no-such-user/t.csv", "home directory"), ("x" * 5000, "File name too long")):
        (line,) = complaints(TRACED.replace("t.csv", name))
        assert re.search(rf"workload\.trace\.path: .*: cannot be looked for: .*{why}", line)
    monkeypatch.delenv("NOT_SET", raising=False)
    (line,) = complaints(TRACED.replace("t.csv", "$NOT_SET/t.csv"))
    assert "environment variable NOT_SET is not set" in line


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("{path: t.csv}", "{path: t.csv}, input_tokens: 5", "workload.input_tokens: 5: should be left out: the trace"),
        ("{path: t.csv}", "{path: t.csv, window: [9, 3]}", "window: should be [from, to] with from before to"),
        ("speed: 2", "speed: 2, input_tokens: 5, output_tokens: 5", "should be left out: a replay takes lengths"),
        ("speed: 2", "rate: 2, input_tokens: 5", "stages[0].output_tokens: missing; should be given too"),
        ("speed: 2", "rate: 2, shared_prefix: {tokens: 3}", "stages[0].shared_prefix: should be left out"),
        ("speed: 2", "speed: 0", "stages[0].speed: 0: should be greater than 0"),
    ],
)
def test_what_a_trace_excludes(tmp_path: Path, old: str, new: str, told: str) -> None:
    (tmp_path / "t.csv").write_text("x")
    found = complaints(TRACED.replace(old, new), tmp_path / "s.yaml")
    assert any(told in line for line in found), found


def test_find_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").mkdir()
    for name in ("mine", "demo"):
        (tmp_path / "scenarios" / f"{name}.yaml").write_text(GOOD)
    assert scenario.find("mine") == Path("scenarios/mine.yaml")
    assert scenario.find("demo") == Path("scenarios/demo.yaml"), "one's own folder comes first"
    assert scenario.find("scenarios/mine.yaml") == Path("scenarios/mine.yaml")
    assert scenario.find("chat-short").is_file(), "scenarios that come along are found from anywhere"
    with pytest.raises(UserError, match=r"^chat-shrot: no such scenario; did you mean chat-short"):
        scenario.find("chat-shrot")
    with pytest.raises(UserError, match=r"^gone/x\.yaml: no such file"):
        scenario.find("gone/x.yaml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        scenario.load(tmp_path)
    (tmp_path / "b.yaml").write_bytes(b"name: \xff")
    with pytest.raises(UserError, match="cannot be read: not UTF-8 text"):
        scenario.load(tmp_path / "b.yaml")
