"""`loadgen trace validate | describe | sample | anonymise` from the command line."""

import json
from pathlib import Path

import pytest

from loadgen.cli.main import main

MOONCAKE = (
    '{"timestamp": 0, "input_length": 1100, "output_length": 52, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 3000, "input_length": 1500, "output_length": 20, "hash_ids": [0, 1, 3]}\n'
    '{"timestamp": 9000, "input_length": 600, "output_length": 9, "hash_ids": [7, 8]}\n'
    '{"timestamp": 9500, "input_length": 600, "output_length": 9, "hash_ids": [9, 10]}\n'
)
MANY = "t,in,out\n" + "".join(f"{at},100,10\n" for at in range(40))


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["trace", *arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("m.jsonl").write_text(MOONCAKE)
    Path("rows.csv").write_text(MANY)
    return tmp_path


def test_validate_ends_with_0_1_or_2(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("validate", "m.jsonl") == 0
    assert capsys.readouterr().out.splitlines() == [
        "m.jsonl (mooncake): 4 rows read = 4 kept + 0 dropped",
        "nothing is wrong",
    ]
    Path("wrong.jsonl").write_text(MOONCAKE + MOONCAKE.replace("[0, 1, 2]", "[5, 1, 2]"))
    assert called("validate", "wrong.jsonl") == 1
    out = capsys.readouterr().out.splitlines()
    assert out[1:3] == [
        "wrong: chained blocks: 1",
        "  row 5: block 1 after 5: should be after 0 as in row 1: the same id means the same whole prefix; ids that "
        "are valid within one session need block_scope session",
    ]
    assert out[3].startswith("note: order: ")
    Path("torn.jsonl").write_text(MOONCAKE + MOONCAKE.replace("[7, 8]", "[7]"))
    assert called("validate", "torn.jsonl") == 2
    captured = capsys.readouterr()
    assert "torn.jsonl:7: number of hash_ids: 1: should be 2 for input_length 600" in captured.err
    assert "6 rows read" in captured.out
    assert "nothing is wrong" not in captured.out


def test_describe_in_text_in_json_and_as_a_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("describe", "m.jsonl", "--capacity", "2_048".replace("_", ""), "--html", "m.html") == 0
    out = capsys.readouterr().out
    assert "prefixes: 26.9% of prompt tokens with an unlimited cache, by blocks of 512 tokens" in out
    assert "2,048 tokens hold" in out or "2,048 tokens are too few" in out
    assert "        512 to     1,023          2  ████████████████" in out
    assert "wrote m.html" in out
    assert Path("m.html").read_text().startswith("<!doctype html>")
    assert called("describe", "m.jsonl", "--json", "--capacities", "512,1024") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["rows_kept"] == 4
    assert [size for size, _ in record["reuse"]["curve"]] == [512, 1024]
    assert len(record["outlook"]) == 3
    assert called("describe", "m.jsonl", "--capacities", "1M") == 2
    assert "1M: should be tokens" in capsys.readouterr().err


def test_sample_prints_reuse_before_and_after_and_refuses_rows(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("sample", "m.jsonl", "--share", "0.5") == 0
    out = capsys.readouterr().out
    assert "2 of 3 prefix families; the largest has 2 rows" in out
    assert "prompt tokens that an unlimited prefix cache finds: 26.9% before, " in out
    assert "wrote m.sample.jsonl" in out
    assert called("sample", "m.jsonl", "--share", "0.5", "--by", "row", "--overwrite") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "should be --by family, or a --window of time" in line
    assert called("sample", "rows.csv", "--map", "t=t,in=in,out=out", "--share", "0.5", "--window", "10:30") == 0
    out = capsys.readouterr().out
    assert "40 rows read = 10 kept + 30 dropped (30 left out of the sample)" in out
    for more, told in (
        ((), "nothing to keep: should be --share, --count or --window"),
        (("--share", "0.5", "--count", "3"), "--share and --count: should be one of them"),
        (("--window", "9:3"), "--window 9:3: should be FROM:TO in seconds"),
        (("--share", "1", "-o", "m.jsonl", "--overwrite"), "m.jsonl: is the source"),
    ):
        assert called("sample", "m.jsonl", *more) == 2
        assert told in capsys.readouterr().err


def test_anonymise_says_what_it_did_and_takes_no_seed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("anonymise", "m.jsonl") == 0
    out = capsys.readouterr().out
    assert "replaced: 0 sessions, 8 prefix blocks, 0 classes, 0 of them rare and merged" in out
    assert "note: exact lengths and times match this trace with any other log" in out
    assert called("anonymise", "m.jsonl", "--round-tokens", "16", "--jitter", "1", "-o", "b.jsonl") == 0
    assert "note:" not in capsys.readouterr().out
    assert called("anonymise", "m.jsonl", "--seed", "1", "-o", "c.jsonl") == 2
    assert "whoever knew a seed could undo them" in capsys.readouterr().err
    assert not Path("c.jsonl").exists()
