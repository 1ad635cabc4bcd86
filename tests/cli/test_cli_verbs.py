"""The verbs as a person runs them, against a small server: what they say, how they exit, what they leave."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from loadgen.records import Report
from loadgen.server.launch import free_port
from loadgen.store import read_experiment

FAKE = Path(__file__).parents[1] / "fakes" / "llm_server.py"
SCENARIO = """
name: tiny
description: "a few short requests"
seed: 1
repeats: 2
workload: {input_tokens: {range: [8, 64]}, output_tokens: {range: [4, 12]}}
stages:
  - {name: one-stream, concurrency: 1, requests: 6, warmup: 1}
  - {name: busy, concurrency: 4, requests: 24, warmup: 4}
slo: {ttft: 1}
"""


@contextmanager
def fake(*options: str) -> Iterator[str]:
    port = free_port(8500)
    with subprocess.Popen(
        [sys.executable, str(FAKE), str(port), *options], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "listening\n"
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def loadgen(*arguments: object, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "loadgen", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})}, check=False
    )


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(SCENARIO)
    return path


def report_of(folder: Path) -> Report:
    return msgspec.json.decode((folder / "report.json").read_bytes(), type=Report)


def test_compare_drives_two_running_servers_in_turn_and_reports(tmp_path, scenario):
    with fake() as base, fake("--dtype", "fp8", "--capacity", "8192") as test:
        done = loadgen(
            "compare", scenario, "--arm", f"base={base}", "--arm", f"fp8={test}/v1/", "--out", tmp_path / "run"
        )
    assert done.returncode == 0, done.stderr
    report = report_of(tmp_path / "run")
    assert report.order == ("base", "fp8", "fp8", "base")
    assert [arm.facts.kv_dtype for arm in report.arms] == ["bfloat16", "fp8"]
    assert [headline.role for headline in report.headlines] == ["one_stream", "saturated"]
    assert all(counts[2] == counts[0] for arm in report.arms for counts in arm.requests.values())
    for form in ("json", "html", "prom", "txt"):
        assert f"report.{form}" in done.stdout


def test_arms_share_a_salt_within_a_repeat_and_repeats_do_not(tmp_path, scenario):
    with fake() as base, fake() as test:
        loadgen("compare", scenario, "--arm", f"a={base}", "--arm", f"b={test}", "--out", tmp_path / "run")
        loadgen("compare", scenario, "--arm", f"a={base}", "--arm", f"b={base}", "--out", tmp_path / "same")
    salts = [(b.manifest.repeat, b.manifest.salt) for b in read_experiment(tmp_path / "run").blocks]
    assert len(set(salts)) == 2
    on_one_server = [b.manifest.salt for b in read_experiment(tmp_path / "same").blocks]
    assert len(set(on_one_server)) == 4


def test_servers_of_an_engine_that_has_no_arms_are_compared(tmp_path, scenario):
    with fake("--no-metrics") as base, fake("--no-metrics") as test:
        arms = ("--engine", "openai", "--arm", f"a={base}", "--arm", f"b={test}", "--repeats", 1)
        done = loadgen("compare", scenario, *arms, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr


def test_run_reports_one_server_without_comparing(tmp_path, scenario):
    with fake() as url:
        done = loadgen("run", scenario, "--url", url, "--repeats", 1, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    report = report_of(tmp_path / "run")
    assert report.test is None
    assert report.differences == ()
    assert {row.quantity for row in report.summaries} >= {"ttft_p50_s", "itl_p50_s", "output_tokens_per_s"}


def test_report_renders_again_from_disk(tmp_path, scenario):
    with fake() as url:
        loadgen("run", scenario, "--url", url, "--repeats", 1, "--out", tmp_path / "run")
    first = (tmp_path / "run" / "report.json").read_bytes()
    again = loadgen("report", tmp_path / "run", "--format", "json")
    assert again.returncode == 0
    assert again.stdout.encode() == first


def test_a_reader_that_goes_away_or_cannot_show_a_sign_is_no_failure(tmp_path, scenario):
    base = f"{sys.executable} -m loadgen"
    with fake() as url:
        run = f"{base} run {scenario} --url {url} --repeats 1 --out {tmp_path / 'run'}"
        cut = subprocess.run(["bash", "-c", f"{run} 2>&1 | head -1; exit ${{PIPESTATUS[0]}}"], check=False)
    assert cut.returncode == 0
    (block,) = read_experiment(tmp_path / "run").blocks
    assert block.end is not None
    assert block.end.how == "complete"
    report = f"{base} report {tmp_path / 'run'}"
    for command in (
        f"{report} | head -1; exit ${{PIPESTATUS[0]}}",
        f"{report} --format json >&-",
        f"PYTHONIOENCODING=ascii {report}",
        f"PYTHONIOENCODING=ascii {report} --format html",
        f"PYTHONIOENCODING=ascii {base} plan {scenario}",
    ):
        done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), command


def test_a_text_only_server_gets_text_of_exact_length(tmp_path, scenario):
    with fake("--refuse-ids") as url:
        done = loadgen("run", scenario, "--url", url, "--repeats", 1, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    (block,) = read_experiment(tmp_path / "run").blocks
    assert all(sample.prompt_tokens == sample.planned_prompt_tokens for sample in block.samples)


def test_metrics_that_are_not_there_are_said_in_the_report(tmp_path, scenario):
    with fake("--no-metrics") as url:
        done = loadgen("run", scenario, "--url", url, "--repeats", 1, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert any("no reading of the server's metrics" in warning for warning in report_of(tmp_path / "run").warnings)
    assert "HTTP 404" in done.stderr


def test_a_server_that_dies_ends_the_run_with_what_was_measured(tmp_path, scenario):
    with fake("--die-after", "20") as url:
        done = loadgen("run", scenario, "--url", url, "--repeats", 1, "--out", tmp_path / "run")
    (block,) = read_experiment(tmp_path / "run").blocks
    assert {sample.failure.kind for sample in block.samples if sample.failure} <= {"connect", "truncated", "protocol"}
    assert any(sample.failure for sample in block.samples)
    for mark in block.marks:
        assert mark.planned == mark.sent + mark.unsent
        assert mark.sent == mark.ok + mark.failed
    assert "failed" in done.stdout


def test_a_run_in_which_every_request_failed_is_no_success_and_says_what_the_server_said(tmp_path, scenario):
    with fake("--fail-after", "0") as bad, fake() as good:
        done = loadgen(
            *("compare", scenario, "--arm", f"good={good}", "--arm", f"bad={bad}", "--repeats", 2),
            *("--out", tmp_path / "run"),
        )
    assert done.returncode == 3
    assert "loadgen: bad: not one measured request ended well" in done.stderr
    assert 'most often: HTTP 500: {"error":{"message":"out of [/memory]"}}' in " ".join(done.stdout.split())
    report = report_of(tmp_path / "run")
    assert {headline.verdict for headline in report.headlines} == {"cannot tell"}


def test_the_key_comes_from_the_environment_and_is_written_nowhere(tmp_path, scenario):
    with fake() as url:
        done = loadgen(
            *("run", scenario, "--url", url, "--repeats", 1, "--out", tmp_path / "run", "--api-key-env", "MY_KEY"),
            env={"MY_KEY": "sk-very-secret"},
        )
    assert done.returncode == 0, done.stderr
    assert "sk-very-secret" not in done.stdout + done.stderr
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or b"sk-very-secret" not in path.read_bytes()


def interrupted(tmp_path: Path, scenario: Path, url: str, times: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "loadgen", "run", str(scenario), "--url", url, "--out", str(tmp_path / "run")]
    going = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    samples = tmp_path / "run" / "blocks" / "000-server" / "samples.jsonl"
    deadline = time.monotonic() + 30
    while not (samples.exists() and samples.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    for _ in range(times):
        going.send_signal(signal.SIGINT)
        time.sleep(0.3)
    return going


def test_control_c_ends_after_the_stage_and_resume_goes_on(tmp_path, scenario):
    scenario.write_text(SCENARIO.replace("requests: 6", "requests: 60"))
    with fake("--token-s", "0.01") as url:
        going = interrupted(tmp_path, scenario, url, times=1)
        out, err = going.communicate(timeout=60)
        assert going.returncode == 3
        assert "--resume" in err
        assert "one-stream" in out
        (block,) = read_experiment(tmp_path / "run").blocks
        assert block.end is not None
        assert block.end.how == "interrupted"
        assert [mark.sent for mark in block.marks if not mark.warmup] == [60]
        done = loadgen("compare", "--resume", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    ends = [(b.manifest.order, b.end.how) for b in read_experiment(tmp_path / "run").blocks if b.end]
    assert sorted(ends) == [(0, "complete"), (0, "interrupted"), (1, "complete")]


def test_control_c_twice_stops_at_once_and_counts_what_was_in_flight(tmp_path, scenario):
    scenario.write_text(SCENARIO.replace("requests: 6", "requests: 600"))
    with fake("--token-s", "0.02") as url:
        going = interrupted(tmp_path, scenario, url, times=2)
        going.communicate(timeout=30)
    assert going.returncode == 3
    (block,) = read_experiment(tmp_path / "run").blocks
    (mark,) = [mark for mark in block.marks if not mark.warmup]
    assert mark.unsent > 0
    assert mark.planned == mark.sent + mark.unsent
    assert [s.failure.kind for s in block.samples if s.failure] == ["stopped"] * mark.failed


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "{scenario}", "--url", "http://127.0.0.1:9"], 3, r"http://127\.0\.0\.1:9.*nothing answers"),
        (["run", "{scenario}", "--url", "localhost:8000"], 2, r"localhost:8000: not a URL of a server"),
        (["run", "{scenario}", "--url", "{html}"], 3, r"not an? (OpenAI|LLM)"),
        (["run", "{scenario}", "--url", "{url}", "--model", "fakee"], 2, r"fakee.*fake"),
        (["run", "{long}", "--url", "{url}"], 2, r"needs 3,0\d\d tokens of context and fake takes 2,048"),
        (["run", "no-such", "--url", "{url}"], 2, r"no-such"),
        (["run", "{scenario}", "--url", "{url}", "--api-key-env", "NOT_SET_AT_ALL"], 2, r"NOT_SET_AT_ALL: not set"),
        (["compare", "{scenario}", "--arm", "bf16"], 2, r"two --arm options"),
        (["compare", "{scenario}", "--arm", "bf61", "--arm", "fp8", "--model", "m"], 2, r"bf61.*bf16"),
        (["compare", "--resume", "/no/such/folder"], 2, r"/no/such/folder: no experiment\.json"),
        (["report", "/no/such/folder"], 2, r"/no/such/folder: not a run directory"),
        (["compare", "{scenario}", "--arm", "a={url}", "--arm", "b={url}", "--restart", "each-block"], 2, "--restart"),
        (
            ["compare", "{scenario}", "--arm", "a={url}", "--arm", "b={url}", "--set", "x"],
            2,
            "--set: x: needs KEY=VALUE",
        ),
        (["comapre", "{scenario}"], 2, "No such command 'comapre'"),
    ],
)
def test_a_mistake_is_one_clear_line_and_the_right_exit_code(tmp_path, scenario, arguments, code, said):
    long = tmp_path / "long.yaml"
    long.write_text(SCENARIO.replace("range: [8, 64]", "range: [3000, 3000]"))
    with ExitStack() as stack:
        values = {"scenario": str(scenario), "long": str(long)}
        if "{url}" in " ".join(arguments):
            values["url"] = stack.enter_context(fake())
        if "{html}" in " ".join(arguments):
            values["html"] = stack.enter_context(fake("--html"))
        done = loadgen(*(argument.format(**values) for argument in arguments), *out_of(arguments, tmp_path))
    assert done.returncode == code, done.stdout + done.stderr
    assert re.search(said, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_every_arm_is_looked_at_before_any_load_is_sent(tmp_path, scenario):
    with fake() as good, fake("--html") as html, fake("--context", "40") as short, fake("--models", "a", "b") as two:
        base = ("compare", scenario, "--arm", f"base={good}", "--arm")
        for test, code, said in (
            (html, 3, "not an OpenAI-compatible LLM server"),
            (short, 2, r"needs 7\d tokens of context and fake takes 40"),
            (two, 2, "it serves 2 models; choose one with --model: a, b"),
        ):
            out = tmp_path / str(len(list(tmp_path.iterdir())))
            done = loadgen(*base, f"test={test}", "--out", out)
            assert done.returncode == code
            assert re.search(rf"loadgen: {test}: .*{said}", done.stderr), done.stderr
            assert not (out / "blocks").exists()
        arms = ("--arm", f"base={two}", "--arm", f"test={two}/v1", "--model", "b")
        done = loadgen("compare", scenario, *arms, "--repeats", 1, "--out", tmp_path / "b")
    assert done.returncode == 0, done.stderr
    assert {block.facts.model for block in read_experiment(tmp_path / "b").blocks} == {"b"}


def test_a_full_disk_is_one_clear_line_and_keeps_what_was_written(tmp_path, scenario):
    small = tmp_path / "small"
    small.mkdir()
    scenario.write_text(SCENARIO.replace("requests: 24", "requests: 200").replace("[4, 12]", "[400, 600]"))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        with fake("--token-s", "0.0001") as url:
            done = loadgen("run", scenario, "--url", url, "--repeats", 1, "--out", small / "run")
        assert done.returncode == 3, done.stderr
        assert re.search(r"cannot write: No space left on device", done.stderr)
        assert "Traceback" not in done.stderr
        (block,) = read_experiment(small / "run").blocks
        assert len(block.samples) >= 7
    finally:
        subprocess.run(["umount", small], check=True)


def out_of(arguments: list[str], tmp_path: Path) -> list[str]:
    return ["--out", str(tmp_path / "run")] if arguments[0] == "run" else []


def test_help_names_every_verb_and_loads_none_of_them():
    code = "import sys; from loadgen.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "print([m for m in ('numpy', 'httpx', 'rich', 'pydantic', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for verb in ("compare", "run", "report", "plan", "serve", "facts"):
        assert re.search(rf"^  {verb}  ", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("[]\n")
