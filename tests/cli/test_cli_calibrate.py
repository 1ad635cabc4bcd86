"""`loadgen calibrate` as a person runs it."""

import pytest
from emulator.fit_planted import FULL, ONE, planned, run, stored

from loadgen.cli.main import main
from loadgen.emulator.profile import load


def called(*argv: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    return int(ended.value.code or 0)


def test_a_run_becomes_a_profile_that_simulates_it_well(tmp_path, capsys):
    plan = planned(ONE, FULL)
    root = stored(run(plan), plan, tmp_path / "run")
    assert called("calibrate", str(root), "--out", str(tmp_path / "mine.yaml")) == 0
    said = capsys.readouterr().out
    assert "The fit explains 9" in said
    assert "conversion_stored_s (fp8)" in said
    assert load(str(tmp_path / "mine.yaml")).name == "mine"
    rows = [line.split() for line in said.splitlines() if line.strip().startswith("saturated")]
    errors = [abs(float(words[-1].rstrip("%"))) for words in rows if words[-1].endswith("%") and "output" in words]
    assert len(errors) == 2
    assert max(errors) < 5


def test_mistakes_are_one_line(tmp_path, capsys):
    plan = planned(ONE, FULL)
    root = stored(run(plan, formats=("bfloat16",), repeats=1), None, tmp_path / "run")
    assert called("calibrate", str(root)) == 2
    assert "no plan.json" in capsys.readouterr().err
    assert called("calibrate", str(tmp_path / "nothing")) == 2
    assert "not a run directory" in capsys.readouterr().err
    assert called("calibrate", str(root), "--model", str(tmp_path), "--shape", "layers=8,kv_heads=8,head_dim=128") == 2
    assert "give one of the two" in capsys.readouterr().err
