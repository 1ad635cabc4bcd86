"""Nothing of the user's is lost to an output path, and absurd numbers are told in one line."""

from pathlib import Path

import pytest

from loadgen.cli.calibrate import _writable
from loadgen.cli.main import main
from loadgen.errors import UserError

TRACE = """{"loadgen_trace":1,"source":"x","format":"azure","rows_read":2,"rows_kept":2,"block_tokens":16}
{"t":0,"in":32,"out":5,"blocks":[1,2]}
{"t":1,"in":32,"out":5,"blocks":[1,3]}
"""


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("own.jsonl")
    path.write_text(TRACE)
    return path


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["trace", *arguments])
    return int(ended.value.code or 0)


@pytest.mark.parametrize("target", ["own.jsonl", "./own.jsonl", "notes.txt", "folder"])
def test_a_page_replaces_nothing_but_a_page(trace: Path, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.txt").write_text("mine")
    Path("folder").mkdir()
    assert called("describe", str(trace), "--html", target) == 2
    assert Path(target).name in capsys.readouterr().err
    assert trace.read_text() == TRACE
    assert Path("notes.txt").read_text() == "mine"


def test_a_page_replaces_a_page(trace: Path) -> None:
    for _ in range(2):
        assert called("describe", str(trace), "--html", "page.html") == 0
    assert sorted(path.name for path in Path().iterdir()) == ["own.jsonl", "page.html"]


def test_a_file_of_the_same_name_and_part_is_left_alone(trace: Path) -> None:
    part = trace.rename("out.jsonl.part")
    Path("page.html.part").write_text("mine")
    assert called("import", str(part), "-o", "out.jsonl") == 0
    assert called("describe", str(part), "--html", "page.html") == 0
    assert part.read_text() == TRACE
    assert Path("page.html.part").read_text() == "mine"


@pytest.mark.parametrize("target", ["folder", "/dev/null"])
def test_only_files_are_overwritten(trace: Path, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    assert called("import", str(trace), "-o", target, "--overwrite") == 2
    assert f"{target}: is a folder or a device; should be a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("anonymise", "--jitter", "1e308"),
        ("anonymise", "--round-tokens", "99999999999999999999999"),
        ("describe", "--prefill-speed", "1e-308"),
        ("describe", "--decode-gap", "1e308"),
    ],
)
def test_absurd_numbers_are_refused(
    trace: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(*arguments, str(trace)) == 2
    assert arguments[1] in capsys.readouterr().err


def test_a_capacity_beyond_every_machine_holds_all(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    huge = "9" * 30
    assert called("describe", str(trace), "--capacity", huge, "--capacities", huge) == 0
    assert "25.0%" in capsys.readouterr().out


def test_a_profile_replaces_nothing_but_a_profile(tmp_path: Path) -> None:
    plan, profile = tmp_path / "plan.json", tmp_path / "profile.yaml"
    plan.write_text("{}")
    profile.write_text("name: x\nstep:\n  fixed_s: 1\nformats:\n  bfloat16: {backend: X}\n")
    assert _writable(profile) == profile
    assert _writable(tmp_path / "new.yaml").name == "new.yaml"
    for path in (plan, tmp_path):
        with pytest.raises(UserError, match="exists and is no profile"):
            _writable(path)
