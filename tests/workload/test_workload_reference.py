import re
from pathlib import Path

import pytest

from loadgen.workload import plan, reference, scenario
from loadgen.workload.fields import Quantiles

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "scenarios").glob("*.yaml"))
HOW = "run python -m loadgen.workload.reference"


def test_the_schema_is_current() -> None:
    assert (ROOT / reference.SCHEMA).read_text(encoding="utf-8") == reference.json_schema(), HOW


def test_the_page_is_current() -> None:
    assert reference.key_tables() in (ROOT / reference.PAGE).read_text(encoding="utf-8"), HOW


def test_writing_changes_nothing_that_is_current(tmp_path: Path) -> None:
    for name in (reference.SCHEMA, reference.PAGE):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    reference.write(tmp_path)
    for name in (reference.SCHEMA, reference.PAGE):
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes()


def test_the_examples_of_the_page_are_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conversation_trace.jsonl").touch()
    monkeypatch.setenv("LOADGEN_TRACES", str(tmp_path))
    page = (ROOT / reference.PAGE).read_text(encoding="utf-8")
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert [scenario.parse(text, Path("example.yaml")).name for text in examples] == [
        "support-chat",
        "replay",
        "agents-and-chat",
        "grid",
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_named_scenarios_load_and_say_what_they_are(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("azure-2023/AzureLLMInferenceTrace_conv.csv", "mooncake-fast25/conversation_trace.jsonl"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    monkeypatch.setenv("LOADGEN_TRACES", str(tmp_path))
    assert path.read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=scenario.schema.json\n")
    loaded = scenario.load(path)
    assert loaded.name == path.stem
    assert loaded.description
    assert loaded.source
    assert loaded.stages[0].concurrency == 1, "one stream first: the decomposition needs it"
    if loaded.workload.trace is None:
        assert plan.build(loaded).stages


def test_the_demo_fits_its_time_and_wants_twice_the_cache() -> None:
    built = plan.build(scenario.load(ROOT / "scenarios" / "demo.yaml"))
    one, full = built.stages
    assert max(request.prompt_tokens + request.output_tokens for request in one.requests) <= 2_048
    work = [*full.warmup, *full.requests]
    assert sum(request.output_tokens for request in work) <= 24_000
    mean_tokens = sum(request.prompt_tokens + request.output_tokens for request in work) / len(work)
    assert 7_500 <= 32 * mean_tokens <= 8_500


def test_the_quantiles_of_chat_short_are_those_of_azures_trace() -> None:
    loaded = scenario.load(ROOT / "scenarios" / "chat-short.yaml")
    assert loaded.workload.output_tokens == Quantiles(quantiles={10: 54, 50: 129, 90: 424, 99: 601, 100: 1000})
