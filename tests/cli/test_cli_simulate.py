"""`loadgen simulate` as a person runs it: what it says, how it exits, what it leaves."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from loadgen.records import Report
from loadgen.store import read_experiment

ROOT = Path(__file__).parents[2]
SCENARIO = """
name: small
seed: 1
repeats: 2
workload: {input_tokens: {range: [8, 64]}, output_tokens: {range: [4, 12]}}
stages:
  - {name: one-stream, concurrency: 1, requests: 6, warmup: 1}
  - {name: busy, concurrency: 4, requests: 24, warmup: 4}
slo: {ttft: 1}
"""
LONG = SCENARIO.replace("requests: 24", "requests: 60000")


def loadgen(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "loadgen", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO)
    return path


def report_of(folder: Path) -> Report:
    return msgspec.json.decode((folder / "report.json").read_bytes(), type=Report)


def test_two_arms_are_compared_and_every_form_says_simulated(tmp_path: Path, scenario: Path) -> None:
    out = tmp_path / "run"
    done = loadgen("simulate", scenario, "--arm", "bf16", "--arm", "fp8", "--profile", "h100-llama3.1-8b", "--out", out)
    assert done.returncode == 0, done.stderr
    told = "SIMULATED: no server ran; these figures follow from profile h100-llama3.1-8b."
    assert told in done.stdout
    assert told in (out / "report.txt").read_text()
    assert f'<p class="simulated">{told}' in (out / "report.html").read_text()
    assert 'profile="h100-llama3.1-8b"' in (out / "report.prom").read_text()
    report = report_of(out)
    assert report.virtual_time
    assert report.order == ("bf16", "fp8", "fp8", "bf16")
    assert [arm.facts.capacity_tokens for arm in report.arms] == sorted(
        a.facts.capacity_tokens or 0 for a in report.arms
    )
    assert "block 4/4 bf16: complete" in done.stderr
    assert loadgen("report", out).stdout == done.stdout


def test_one_arm_alone_gives_figures_and_set_reaches_it(tmp_path: Path, scenario: Path) -> None:
    out = tmp_path / "run"
    done = loadgen("simulate", scenario, "--arm", "bf16", "--set", "max-num-seqs=2", "--repeats", 1, "--out", out)
    assert done.returncode == 0, done.stderr
    report = report_of(out)
    assert (report.test, len(read_experiment(out).blocks)) == (None, 1)
    assert (report.arms[0].facts.profile, report.arms[0].facts.max_num_seqs) == ("cpu-tiny-llama", 2)
    (block,) = (out / "blocks").iterdir()
    (block / "end.json").unlink()
    again = loadgen("simulate", "--resume", out)
    assert again.returncode == 0, again.stderr
    assert report_of(out).summaries == report.summaries


def test_a_profile_may_be_a_file_and_is_kept_with_the_run(tmp_path: Path, scenario: Path) -> None:
    text = (ROOT / "deploy" / "emulator" / "profiles" / "cpu-tiny-llama.yaml").read_text()
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace("name: cpu-tiny-llama", "name: mine"))
    done = loadgen("simulate", scenario, "--arm", "bf16", "--profile", mine, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "follow from profile mine." in done.stdout
    assert read_experiment(tmp_path / "run").manifest.profiles == {str(mine): mine.read_text()}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "simulate needs a SCENARIO and at least one --arm, such as: demo --arm bf16 --arm fp8"),
        (("demo",), "simulate needs a SCENARIO and at least one --arm"),
        (("demo", "--arm", "a=http://127.0.0.1:1"), "--arm a=http://127.0.0.1:1: no server is asked; give a name"),
        (("demo", "--arm", "bf17"), "--arm bf17: no such arm; did you mean bf16?"),
        (("demo", "--arm", "bf16", "--profile", "h200"), "profile h200: no such profile; known: "),
        (("demo", "--arm", "bf16", "--set", "max-num-sqs=3"), "arm bf16: max-num-sqs=3: the emulator has no such flag"),
        (("long-chat", "--arm", "bf16"), "arm bf16: stage one-stream: a request of "),
        (("demo", "--resume", "x"), "--resume: takes scenario and arms from the run directory; leave them out"),
        (("--resume", "nowhere"), "--resume: nowhere: no experiment.json and plan.json there"),
    ],
)
def test_a_mistake_is_told_in_a_line_and_leaves_nothing(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    done = loadgen("simulate", *arguments, "--out", tmp_path / "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert all(line.startswith("loadgen: ") for line in done.stderr.splitlines())
    assert f"loadgen: {complaint}" in done.stderr
    assert not (tmp_path / "run").exists()


def test_ctrl_c_ends_it_and_reports_what_there_is(tmp_path: Path) -> None:
    long, out = tmp_path / "long.yaml", tmp_path / "run"
    long.write_text(LONG)
    command = [
        sys.executable,
        "-m",
        "loadgen",
        "simulate",
        str(long),
        "--arm",
        "bf16",
        "--repeats",
        "1",
        "--out",
        str(out),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stderr is not None
        assert [process.stderr.readline() for _ in range(2)] == [f"run directory: {out}\n", "blocks to simulate: 1\n"]
        time.sleep(1)  # the block takes several
        os.kill(process.pid, signal.SIGINT)
        shown, said = process.communicate(timeout=60)
    assert process.returncode == 3, said
    assert "SIMULATED" in shown
    assert re.search(rf"stopped; `loadgen simulate --resume {out}` goes on with it", said)
    (block,) = read_experiment(out).blocks
    assert block.end is not None
    assert block.end.how == "interrupted"


def test_its_help_is_quick_and_needs_no_analysis() -> None:
    code = (
        "import sys; from loadgen.cli.main import program\n"
        "try: program.main(['simulate', '--help'], standalone_mode=False)\n"
        "finally: assert not {'numpy', 'scipy', 'plotly', 'pydantic', 'httpx'} & set(sys.modules), 'slow imports'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--profile" in done.stdout
