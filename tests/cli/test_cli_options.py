from pathlib import Path

import click
import pytest

from loadgen.cli import main as cli
from loadgen.cli.options import Finite, bearer, command_line, pairs, run_folder
from loadgen.errors import ExperimentError, UserError
from loadgen.experiment.setup import Reach, resume
from loadgen.records import ArmSpec, BlockEnd, ExperimentManifest, Plan
from loadgen.store import read_experiment, write_once


@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_a_number_of_seconds_is_finite_and_within_its_bounds(value):
    with pytest.raises(click.BadParameter):
        Finite(min=0).convert(value, None, None)
    assert Finite(min=0).convert("0.5", None, None) == 0.5


def test_two_runs_in_one_second_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = []
    for _ in range(3):
        folders.append(run_folder(None, "demo"))
        folders[-1].mkdir(parents=True)
    assert len(set(folders)) == 3
    assert run_folder(Path("mine"), "demo") == Path("mine")


def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(monkeypatch):
    monkeypatch.setenv("KEY", " sk-1\n")
    assert bearer("KEY") == {"Authorization": "Bearer sk-1"}
    for key, why in (("sk-1\nx", "cannot carry"), ("sk-1é", "cannot carry"), (" ", "not set")):
        monkeypatch.setenv("KEY", key)
        with pytest.raises(UserError, match=why) as refused:
            bearer("KEY")
        assert "sk-1" not in str(refused.value)


def test_a_plan_of_another_run_is_not_gone_on_with(tmp_path):
    arm = ArmSpec(name="a", engine="vllm", url="http://127.0.0.1:9")
    asked = {"command": "loadgen", "scenario": "s", "scenario_text": "", "started_at": ""}
    write_once(
        tmp_path,
        ExperimentManifest(loadgen="0", arms=(arm,), order=(0,), restart="never", plan_digest="one", **asked),
    )
    write_once(tmp_path, Plan(scenario="s", seed=1, digest="other", stages=()))
    with pytest.raises(UserError, match=r"plan\.json: is not the plan that this run began with"):
        resume(tmp_path, Reach())


def test_a_pair_that_is_none_shows_one_that_fits_the_option():
    with pytest.raises(UserError, match=r"--log: x: needs KEY=VALUE, such as --log fp8=server\.log"):
        pairs(("x",), "--log", "fp8=server.log")


def test_a_folder_below_a_file_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ExperimentError, match="cannot write: Not a directory"):
        write_once(tmp_path / "file" / "run", BlockEnd(ended_s=0.0, how="complete"))


@pytest.mark.parametrize("arms", [(), (ArmSpec(name="a", engine="vllm"),)])
def test_an_order_of_arms_that_are_not_there_is_told(tmp_path, arms):
    asked = {"command": "loadgen", "scenario": "s", "scenario_text": "", "plan_digest": "", "started_at": ""}
    write_once(tmp_path, ExperimentManifest(loadgen="0", arms=arms, order=(0, 1), restart="never", **asked))
    with pytest.raises(UserError, match=r"experiment\.json: order: should be of numbers of its \d arms"):
        read_experiment(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["report", "x" * 5000], 3, "File name too long"),
        (["run", "demo", "--url", "http://127.0.0.1:9", "--name", "a/[b]"], 2, "--name a/[b]: should be of letters"),
        (["compare", "demo", "--arm", "zz", "--arm", "bf16"], 2, "--arm zz: no such arm; known: bf16, fp8"),
        (["compare", "demo", "--arm", "bf16", "--arm", "fp8", "--model", "~nobody-here/m"], 2, "no such folder"),
    ],
)
def test_one_line_and_no_traceback(capsys, arguments, code, said):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == code
    assert said in capsys.readouterr().err


def test_the_command_to_run_again_names_no_folder_that_is_taken_by_then(monkeypatch):
    monkeypatch.setattr("sys.argv", ["loadgen", "run", "demo", "--out", "runs/a b", "--url", "http://h", "--out=x"])
    assert command_line() == "loadgen run demo --url http://h"
