"""`loadgen trace`: the group, and `import`."""

import subprocess
import sys
from pathlib import Path

import pytest

from loadgen.cli.main import main

ROOT = Path(__file__).parents[2]
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
7205,GPT-4,417,276,693,API log
"""


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["trace", *arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "burst.v1.csv").write_text(BURST)
    return Path("burst.v1.csv")


def test_import_says_what_became_of_every_row(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("import", str(source)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "burst.v1.csv (burstgpt): 3 rows read = 2 kept + 1 dropped (1 no output tokens)",
        "2.0 h of trace (7,200.000 s), 0.000278 requests/s",
        "wrote burst.trace.jsonl",
    ]
    assert called("import", str(source)) == 2
    assert "burst.trace.jsonl: exists; --overwrite replaces it, -o names another file" in capsys.readouterr().err
    assert called("import", str(source), "--overwrite", "--time-unit", "ms") == 0
    assert "0.1 min of trace (7.200 s)" in capsys.readouterr().out


def test_imports_mistakes_are_one_line(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, told in (
        (("gone.csv",), "loadgen: gone.csv: cannot be read: No such file or directory; should be a trace file"),
        ((str(source), "--format", "x"), "loadgen: x: no such trace format; should be auto, canonical, azure"),
        ((str(source), "--format", "azure"), "loadgen: burst.v1.csv:1: header: no column TIMESTAMP"),
        ((str(source), "--map", "t=a"), "loadgen: --map: no in, out; should be t=KEY,in=KEY,out=KEY"),
        ((str(source), "--option", "map=t=a"), "loadgen: --option map: format burstgpt has no such option"),
    ):
        assert called("import", *arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(told)
    assert sorted(path.name for path in Path().iterdir()) == [source.name]


def test_import_lists_the_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert called("import", "--list") == 0
    assert "mooncake: JSON lines: timestamp (ms)" in capsys.readouterr().out


def test_help_loads_no_verb_and_no_reader() -> None:
    code = "import sys; from loadgen.cli.main import main\n"
    code += "for words in ((), ('import',), ('validate',), ('describe',), ('sample',), ('anonymise',)):\n"
    code += "    try: main(['trace', *words, '--help'])\n    except SystemExit: pass\n"
    code += "print([m for m in sys.modules if m in ('numpy', 'msgspec') or m.startswith('loadgen.traces')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    for verb in ("import", "validate", "describe", "sample", "anonymise"):
        assert f"\n  {verb} " in done.stdout
    assert done.stdout.endswith("[]\n")
