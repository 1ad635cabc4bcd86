"""TraceLab's rounds and its two CSV forms."""

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.trace_files import REAL, both_ways, real, recognised_by, refused, write

from loadgen.errors import UserError
from loadgen.traces.read import read_trace

DAY = "2026-06-01T05:40:"


def events(*given: tuple[str, str]) -> list[dict[str, str]]:
    return [{"event_type": kind, "timestamp": f"{DAY}{at}Z"} for kind, at in given]


def round_(index: int, prefix: int, added: int, timing: Any, session: str = "claude:a", **more: Any) -> dict[str, Any]:
    return {
        "provider": "claude",
        "session_id": session,
        "round_index": index,
        "model": "m",
        "input_tokens_total": prefix + added,
        "prefix_tokens": prefix,
        "newly_append_tokens": added,
        "output_tokens": 50,
        "reasoning_output_tokens": None,
        "timing_events": timing,
        "tools": [{"tool_name": "Bash", "tool_wall_latency_ms": 19_291}],
    } | more


FIRST = round_(
    0,
    700,
    300,
    events(("user_message", "20.151"), ("reasoning", "29.420"), ("tool_call", "30.8"), ("tool_call", "31.647")),
)
SECOND = round_(
    1,
    1000,
    40,
    events(("tool_result", "31.696"), ("tool_result", "50.938"), ("text", "55.000"), ("user_message", "59.0")),
)


def file(folder: Path, *rounds: dict[str, Any]) -> Path:
    return write(folder / "t.jsonl", "".join(json.dumps(one) + "\n" for one in rounds))


def test_a_rounds_input_is_what_it_keeps_and_what_it_appends(tmp_path: Path) -> None:
    path = file(tmp_path, FIRST, SECOND)
    assert recognised_by(path) == ["tracelab"]
    first, second = both_ways(path).rows
    assert (first.input_tokens, first.prefix_tokens, first.cached_tokens) == (1000, None, 700)
    assert (second.input_tokens, second.prefix_tokens, second.cached_tokens) == (1040, 1000, 1000)
    assert (second.session, second.turn, second.kind) == ("claude:a", 2, "m")


def test_a_round_waits_for_the_last_of_its_tools(tmp_path: Path) -> None:
    first, second = read_trace(file(tmp_path, FIRST, SECOND)).rows
    assert (first.at_s, second.at_s) == (0, pytest.approx(30.787, abs=1e-9))
    assert (first.think_s, second.think_s) == (None, pytest.approx(19.291, abs=1e-9))
    assert (first.duration_s, second.duration_s) == (pytest.approx(11.496), pytest.approx(8.062))


def test_rounds_without_events_follow_at_once_or_are_dropped(tmp_path: Path) -> None:
    lost = round_(0, 0, 9, [], session="b")
    trace = both_ways(file(tmp_path, FIRST, round_(1, 1000, 40, None), lost, round_(2, 9, 9, [], output_tokens=None)))
    assert trace.dropped == {"no timing_events": 1, "no output tokens recorded": 1}
    assert (trace.rows[1].at_s, trace.rows[1].think_s) == (pytest.approx(11.496), 0.0)


def test_rounds_that_come_twice_are_dropped_and_rounds_in_parallel_told(tmp_path: Path) -> None:
    parallel = round_(1, 1000, 40, events(("tool_result", "25.000"), ("text", "26.000")))
    trace = both_ways(file(tmp_path, FIRST, FIRST, parallel))
    assert trace.dropped == {"not after the session's round before": 1}
    assert trace.rows[1].think_s == 0.0
    assert trace.notes[0].startswith("1 turns began before the turn before had ended")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            {"input_tokens_total": 999},
            "FILE:1: input_tokens_total: 999: should be 1000: prefix_tokens and newly_append",
        ),
        ({"prefix_tokens": None}, "FILE:1: prefix_tokens: None: should be a whole number of tokens"),
        ({"round_index": -1}, "FILE:1: round_index: -1: should be a whole number"),
        ({"session_id": None}, "FILE:1: session_id: missing"),
        ({"timing_events": {}}, None),
        ({"timing_events": "05:40"}, "FILE:1: timing_events: '05:40': should be a list of events"),
        ({"timing_events": [{"timestamp": 5}]}, "FILE:1: timing_events[0]: {'timestamp': 5}: should be an event"),
        ({"timing_events": [{"timestamp": "5"}]}, "FILE:1: timing_events[0].timestamp: '5': should be a time such as"),
    ],
)
def test_a_malformed_round(tmp_path: Path, more: dict[str, Any], told: str | None) -> None:
    expected = told or "FILE: no row to send: 1 with no timing_events"
    assert refused(file(tmp_path, FIRST | more)).startswith(expected)


EXAMPLE = """session_id,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms
0,0,100,50,10,182.5
1,0,0,7,3,0
0,1,160,20,10,28
0,2,0,30,10,0
"""
EXPORTED = """id,input_len,output_len,arrival_time,round_idx,tool_wait_after_ms,prefix_len
s1,512,64,200.5,0,100.0,0
s1,128,64,200.5,1,0,576
"""


def test_the_form_without_arrivals(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", EXAMPLE)
    assert recognised_by(path) == ["tracelab_csv"]
    trace = both_ways(path)
    rows = [row for row in trace.rows if row.session == "0"]
    assert [(row.at_s, row.turn, row.input_tokens, row.prefix_tokens, row.think_s) for row in rows] == [
        (0, 1, 150, None, None),
        (0.1825, 2, 180, 160, 0.1825),
        (0.2105, 3, 30, 0, 0.028),
    ]
    assert trace.notes[0] == "arrival times of this form are not recorded: they are drawn, or all 0"


def test_the_exported_form_has_its_columns_in_another_order(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", EXPORTED)
    assert recognised_by(path) == ["tracelab_csv"]
    first, second = both_ways(path).rows
    assert (first.session, first.input_tokens, second.input_tokens, second.prefix_tokens) == ("s1", 512, 704, 576)
    assert (second.at_s, second.think_s) == (0.1, 0.1)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("0,1,160", "0,0,160", "FILE:4: round_idx: '0': should be above 0, the session's round before"),
        ("182.5", "-1", "FILE:2: tool_wait_after_ms: '-1': should be milliseconds, 0 or more"),
        ("182.5", "soon", "FILE:2: tool_wait_after_ms: 'soon': should be milliseconds"),
        ("160", "x", "FILE:4: prefix_len: 'x': should be a whole number of tokens"),
        ("1,0,0,7", ",0,0,7", "FILE:3: session_id: '': should be an id"),
    ],
)
def test_a_malformed_csv_row(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in EXAMPLE
    assert refused(write(tmp_path / "t.csv", EXAMPLE.replace(old, new))).startswith(told)


def test_csv_without_a_session(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", EXAMPLE.replace("session_id", "session"))
    with pytest.raises(UserError, match="should be one with session_id or id"):
        read_trace(path, "tracelab_csv")


@REAL
def test_the_published_rounds() -> None:
    trace = read_trace(real("tracelab-sample/round_trace.jsonl"))
    assert (trace.rows_read, len(trace.rows), trace.dropped) == (19, 19, {})
    assert len({row.session for row in trace.rows}) == 2
    assert sorted(row.input_tokens for row in trace.rows)[9] == 32_272
    assert sorted(row.output_tokens for row in trace.rows)[9] == 273
    claude = [row for row in trace.rows if row.session is not None and row.session.startswith("claude")]
    assert claude[1].think_s == pytest.approx(19.291)
    assert [row.turn for row in claude] == list(range(1, 11))


@REAL
@pytest.mark.parametrize(
    ("name", "rows", "sessions"),
    [("multi_session_example", 8, 3), ("multi_session_large", 303, 48), ("session_workload_example", 11, 1)],
)
def test_the_published_csvs(name: str, rows: int, sessions: int) -> None:
    trace = read_trace(real(f"tracelab-sample/{name}.csv"))
    assert (trace.rows_read, len({row.session for row in trace.rows}), trace.dropped) == (rows, sessions, {})
