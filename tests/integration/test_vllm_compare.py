"""The main job on the real engine, short: `loadgen compare` as a person runs it, judged by what lies on disk."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from loadgen.records import Report
from loadgen.store import read_experiment

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).parents[2]
SHORT = Path(__file__).with_name("short.yaml")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    out = tmp_path_factory.mktemp("compare") / "run"
    command = [sys.executable, "-m", "loadgen", "compare", str(SHORT), "--arm", "bf16", "--arm", "fp8"]
    command += ["--shared", "deploy/vllm/tiny-cpu.yaml", "--model", ".cache/tiny-llama", "--restart", "never"]
    done = subprocess.run(
        [*command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return out, done


def test_it_says_a_verdict_for_each_role_and_writes_every_report(run):
    out, done = run
    report = msgspec.json.decode((out / "report.json").read_bytes(), type=Report)
    assert {headline.role for headline in report.headlines} == {"one_stream", "saturated"}
    for headline in report.headlines:
        first_words = headline.sentence.split(":")[0][:20]
        assert first_words in done.stdout.replace("\n", " ")
    assert all((out / f"report.{form}").stat().st_size > 0 for form in ("txt", "json", "html", "prom"))
    assert {finding.cause for finding in report.findings} == {"backend", "conversion", "short context", "unused memory"}


def test_facts_are_read_back_from_both_servers(run):
    facts = {block.manifest.arm: block.facts for block in read_experiment(run[0]).blocks}
    assert facts["bf16"].kv_dtype == "bfloat16"
    assert (facts["fp8"].kv_dtype or "").startswith("fp8")
    assert facts["bf16"].capacity_tokens
    assert facts["fp8"].capacity_tokens
    assert facts["fp8"].capacity_tokens / facts["bf16"].capacity_tokens == pytest.approx(2.0, rel=0.02)
    assert [backend.name for backend in facts["fp8"].backends] == ["CPU_ATTN"]


def test_both_arms_did_the_same_work_exactly_as_planned(run):
    by_arm: dict[str, dict[tuple[int, str, int], tuple[int | None, int | None, str | None]]] = {}
    for block in read_experiment(run[0]).blocks:
        assert block.end is not None
        assert block.end.how == "complete"
        for sample in block.samples:
            assert sample.failure is None
            assert sample.prompt_tokens == sample.planned_prompt_tokens
            assert sample.output_tokens == sample.planned_output_tokens
            if not sample.warmup:
                key = (block.manifest.repeat, sample.stage, sample.index)
                done = (sample.prompt_tokens, sample.output_tokens, sample.finish_reason)
                by_arm.setdefault(block.manifest.arm, {})[key] = done
    assert by_arm["bf16"] == by_arm["fp8"]


def test_the_small_cache_was_full_and_the_scrapes_saw_it(run):
    for block in read_experiment(run[0]).blocks:
        usage = [engine.values["kv_usage_ratio"] for scrape in block.scrapes for engine in scrape.engines]
        preempted = [engine.values["preemptions"] for scrape in block.scrapes for engine in scrape.engines]
        if block.manifest.arm == "bf16":
            assert max(usage) > 0.8
            assert max(preempted) > 0
        assert sum(1 for scrape in block.scrapes if scrape.failure) <= 0.05 * len(block.scrapes)


def test_the_servers_are_gone(run):
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "vllm.entrypoints" not in listed
