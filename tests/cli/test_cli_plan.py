import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from loadgen.cli.plan import command
from loadgen.errors import UserError

TEXT = """
name: small
description: thirty-two at once
workload: {input_tokens: 250, output_tokens: 6}
stages:
  - {name: full, concurrency: 32, requests: 40}
  - {name: steady, rate: 2, duration: 10s}
"""
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:17:0{second}.5,{100 + second},{second}\n" for second in range(6)
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    return path


def run(*words: str) -> str:
    result = CliRunner().invoke(command, list(words), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_tables(file: Path) -> None:
    shown = run(str(file), "--capacity", "4096", "--rows", "2")
    squeezed = [" ".join(line.split()) for line in shown.splitlines()]
    assert "small: thirty-two at once" in squeezed
    assert "full 32 in flight 40 32" in squeezed
    assert "steady 2/s, CV 1, 9 s 20 2" in squeezed
    assert "full prompt 250 250 250 250 250 250 10,000" in squeezed
    assert "full: a capacity of 4,096 tokens holds 16 of 32 requests of the peak" in squeezed
    assert "full 1 - 250 6 u:full:1 x 250" in squeezed
    assert not any("u:full:2 " in line for line in squeezed)
    assert any(line.startswith("assumed: 10,000 prefill tokens/s, 20 ms per output token") for line in squeezed)


def test_a_name_is_no_emoji(file: Path) -> None:
    file.write_text(TEXT.replace("full", "fire"))
    assert "u:fire:0 x 250" in run(str(file))


def test_json(file: Path) -> None:
    told = json.loads(run(str(file), "--json", "--capacity", "4096", "--rows", "1", "--decode-gap", "0.5"))
    full = told["stages"][0]
    assert full["spec"]["role"] == "saturated"
    assert full["prompt_tokens"] == {"total": 10_000, "p10": 250, "p50": 250, "p90": 250, "p99": 250, "max": 250}
    assert full["kv"]["capacities"] == [{"tokens": 4_096, "held": 16, "reused_ratio": 0.0}]
    assert full["kv"]["peak_tokens"] == 8_192
    assert len(full["first"]) == 1
    assert told["assumed"] == {"prefill_tokens_per_s": 10_000.0, "decode_gap_s": 0.5}
    assert len(told["digest"]) == 32


def test_a_trace_is_read_and_its_losses_are_told(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    path = tmp_path / "traced.yaml"
    path.write_text("name: traced\nworkload: {trace: {path: t.csv}}\nstages: [{name: replay, speed: 0.5}]\n")
    shown = run(str(path))
    assert "trace x 0.5, 8 s" in shown
    assert "note: trace: dropped 1 of 6 rows: no output tokens" in shown


def test_sessions_and_what_a_prefix_cache_finds(tmp_path: Path) -> None:
    lines = ['{"loadgen_trace":1,"source":"x","format":"x","rows_read":3,"rows_kept":3,"block_tokens":16}']
    lines += [
        '{"t":0,"in":64,"out":5,"blocks":[1,2,3,4],"session":"a"}',
        '{"t":1,"in":80,"out":5,"blocks":[9,8,7,6,5]}',
        '{"t":2,"in":96,"out":5,"blocks":[1,2,3,4,11,12],"session":"a","think":1.5}',
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    path = tmp_path / "s.yaml"
    path.write_text("name: s\nworkload: {trace: {path: t.jsonl}}\nstages: [{name: replay, speed: 2}]\n")
    shown = run(str(path), "--capacity", "100", "--capacity", "1000", "--block", "16")
    squeezed = [" ".join(line.split()) for line in shown.splitlines()]
    assert "stage sends requests warm-up sessions later turns" in squeezed
    assert "replay trace x 2, starts in 0 s 3 3 2 1" in squeezed
    assert any(line.startswith("replay 2 after 0 + 1.500 96 5 b:replay:1 x 16") for line in squeezed)
    held = "replay: a capacity of {} tokens holds {} of 1 requests of the peak{}"
    assert held.format("100", "0", "") in squeezed
    assert held.format("1,000", "1", "; its prefix cache finds 26.7 % of the prompt tokens") in squeezed
    told = json.loads(run(str(path), "--json", "--capacity", "1000", "--block", "16"))["stages"][0]
    assert told["kv"]["reused_ratio"] == round(64 / 240, 4)
    assert told["spec"]["sessions"] == 2
    assert told["spec"]["reuse"]["ratios"][:2] == [0.266667, 0.266667]


def test_a_users_mistake_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        run(str(tmp_path / "gone.yaml"))
    result = CliRunner().invoke(command, ["demo", "--capacity", "none"])
    assert result.exit_code == 2
