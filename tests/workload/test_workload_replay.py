"""A trace's sessions as a plan: who waits for whom, when, what is cut, what is told."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loadgen.errors import UserError
from loadgen.records import Plan, Request, Trace, TraceRow
from loadgen.workload import plan as plans, scenario

PLAIN = "stages: [{name: replay, speed: 2}]"


def row(at_s: float, inputs: int = 100, outputs: int = 10, **more: Any) -> TraceRow:
    return TraceRow(at_s=at_s, input_tokens=inputs, output_tokens=outputs, **more)


def planned(
    folder: Path, rows: list[TraceRow], keys: str = "", stages: str = PLAIN, work: str = "", **trace: Any
) -> Plan:
    (folder / "t").touch()
    text = f"name: x\nworkload: {{trace: {{path: t{keys}}}{work}}}\n{stages}\n"
    ordered = tuple(sorted(rows, key=lambda one: one.at_s))
    read = Trace(source="t", format="canonical", rows=ordered, rows_read=len(rows), **trace)
    return plans.build(scenario.parse(text, folder / "s.yaml"), read)


def sent(plan: Plan, stage: int = 0) -> list[tuple[float | None, tuple[int, ...] | None, float]]:
    return [(one.due_s, one.after, one.think_s) for one in plan.stages[stage].requests]


CHAT = [
    row(0, session="a", turn=1),
    row(10, 150, session="a", turn=2, think_s=4.0),
    row(12, session="b", turn=1),
    row(20, 230, session="a", turn=3, think_s=1.5),
    row(21, session="c"),
]


def test_later_turns_wait_for_those_before_and_for_thinking_which_speed_leaves_alone(tmp_path: Path) -> None:
    plan = planned(tmp_path, CHAT)
    assert sent(plan) == [(0, None, 0), (None, (0,), 4.0), (6, None, 0), (None, (1,), 1.5), (10.5, None, 0)]
    spec = plan.stages[0].spec
    assert (spec.planned, spec.sessions) == (5, 3)
    assert plan.notes[1:] == (
        "trace: 2 of 5 rows follow others, in 3 sessions: each is sent when those have ended and its client has "
        "thought; 3 are starts",
        "trace: 2 turns do not say what they share with the turn before: taken to begin with all of it, but for 0 that "
        "are shorter and share nothing",
        "replay: 21.0 s of trace, its starts in 10.5 s, later turns as their sessions come to them (speed 2)",
    )


@pytest.mark.parametrize(
    ("keys", "thinks", "told"),
    [
        (", think: none", [0, 0], "trace: no think time"),
        (", think: 250ms", [0.25, 0.25], "trace: a think time of 250 ms for all turns"),
        (", think_cap: 2", [2.0, 1.5], "trace: cut 1 of 2 think times to 2.00 s (the longest: 4.00 s)"),
        (", think_speed: 4", [1.0, 0.375], "trace: think times are divided by 4"),
    ],
)
def test_thinking_as_asked(tmp_path: Path, keys: str, thinks: list[float], told: str) -> None:
    plan = planned(tmp_path, CHAT, keys)
    assert [think for _, after, think in sent(plan) if after] == thinks
    assert told in plan.notes


def test_think_time_from_the_gap_or_else_the_turns_own_time(tmp_path: Path) -> None:
    rows = [
        row(0, session="a", duration_s=3.0),
        row(10, session="a", duration_s=50.0),
        row(20, session="a"),
        row(33, session="a"),
    ]
    plan = planned(tmp_path, rows)
    assert sent(plan) == [(0, None, 0), (None, (0,), 7.0), (None, (1,), 0.0), (16.5, (2,), 0.0)]
    assert any(note.startswith("trace: 1 of 3 turns have no recorded think time: with `speed`") for note in plan.notes)
    closed = planned(tmp_path, rows, stages="stages: [{name: a, concurrency: 2}]")
    assert sent(closed)[3] == (None, (2,), 0.0)


def test_open_sessions_wait_for_nobody(tmp_path: Path) -> None:
    plan = planned(tmp_path, CHAT, ", sessions: open")
    assert sent(plan) == [(0, None, 0), (5, None, 0), (6, None, 0), (10, None, 0), (10.5, None, 0)]
    assert plan.stages[0].spec.sessions is None
    assert any("sessions: open: every row is sent at its own time" in note for note in plan.notes)


AGENTS = [  # a parent asks two sub-agents and joins what they found; one of them has a turn of its own
    row(0, id="p1", session="p", turn=1),
    row(5, id="x1", session="x", after=("p1",), think_s=0.5),
    row(5, id="y1", session="y", after=("p1",), think_s=0.75),
    row(9, id="y2", session="y", think_s=0.25),
    row(30, id="p2", session="p", turn=2, after=("p1", "x1", "y2"), think_s=1.0),
    row(40, id="q", after=("gone", "p2"), think_s=2.0),
]


def test_sub_agents_fan_out_and_join(tmp_path: Path) -> None:
    plan = planned(tmp_path, AGENTS)
    assert [after for _, after, _ in sent(plan)] == [None, (0,), (0,), (2,), (0, 1, 3), (4,)]
    assert plan.stages[0].spec.sessions == 1
    assert "trace: 1 row name rows that the trace does not hold: those count as ended" in plan.notes
    assert any("in 3 sessions, 1 of them several (joins)" in note for note in plan.notes)


def test_one_stream_is_one_request_at_a_time(tmp_path: Path) -> None:
    one = "stages: [{name: a, concurrency: 1}]"
    assert planned(tmp_path, CHAT, stages=one).stages[0].spec.role == "one_stream"
    assert planned(tmp_path, AGENTS, stages=one).stages[0].spec.role == "saturated"


def test_a_parent_stands_before_its_followers_whatever_their_times(tmp_path: Path) -> None:
    rows = [row(1, 11, id="child", after=("late",)), row(5, 55, id="late"), row(3, 33)]
    requests = planned(tmp_path, rows).stages[0].requests
    assert [(one.prompt_tokens, one.after) for one in requests] == [(33, None), (55, None), (11, (1,))]


def test_turns_stand_in_order_of_their_numbers(tmp_path: Path) -> None:
    rows = [row(3, 200, session="a", turn=2), row(3, 100, session="a", turn=1)]
    requests = planned(tmp_path, rows).stages[0].requests
    assert [(one.prompt_tokens, one.after) for one in requests] == [(100, None), (200, (0,))]


def test_rows_that_wait_in_a_circle_are_an_error(tmp_path: Path) -> None:
    rows = [row(0), row(1, id="a", after=("b",)), row(2, id="b", after=("a",))]
    with pytest.raises(UserError, match=r"t: row 2 in order of time waits for itself"):
        planned(tmp_path, rows)
    assert len(sent(planned(tmp_path, rows, ", sessions: open"))) == 3


def test_a_closed_loop_takes_whole_sessions(tmp_path: Path) -> None:
    plan = planned(tmp_path, CHAT, stages="stages: [{name: a, concurrency: 2}, {name: b, concurrency: 2, requests: 2}]")
    assert sent(plan) == [(None, None, 0), (None, (0,), 4.0), (None, (1,), 1.5), (None, None, 0), (None, None, 0)]
    assert sent(plan, 1) == sent(plan)[:2]
    assert "b: the first 2 of 5 rows" in plan.notes
    assert not any("side by side" in note for note in plan.notes)


def test_one_session_at_a_time_that_fans_out_is_not_one_stream_and_a_note_says_so(tmp_path: Path) -> None:
    rows = [row(0, id="a"), row(1, id="b", after=("a",)), row(1, id="c", after=("a",))]
    plan = planned(tmp_path, rows, stages="stages: [{name: one, concurrency: 1}]")
    assert plan.stages[0].spec.role == "saturated"
    assert any(note.startswith("one: turns of one session run side by side") for note in plan.notes)


def test_a_rate_begins_sessions(tmp_path: Path) -> None:
    plan = planned(
        tmp_path, CHAT, stages="stages: [{name: a, rate: 2, burstiness: 0}, {name: b, rate: 2, duration: 1}]"
    )
    assert [(due, after) for due, after, _ in sent(plan)] == [
        (0, None),
        (None, (0,)),
        (None, (1,)),
        (0.5, None),
        (1, None),
    ]
    assert len(sent(plan, 1)) == 4, "two sessions begin within a second"


def test_a_window_cuts_sessions_and_says_so(tmp_path: Path) -> None:
    plan = planned(tmp_path, CHAT, ", window: [10, 21]")
    assert sent(plan) == [(0, None, 0), (1, None, 0), (None, (0,), 1.5)]
    told = "trace: the window cuts 1 row off from rows before it that they follow: those count as ended"
    assert told in plan.notes


def test_a_dropped_turn_is_bridged_and_keeps_what_its_neighbours_share(tmp_path: Path) -> None:
    rows = [
        row(0, 100, session="a"),
        row(1, 900, session="a", think_s=1, prefix_tokens=100),
        row(2, 300, session="a", think_s=2, prefix_tokens=250),
        row(3, 120, session="b"),
    ]
    plan = planned(tmp_path, rows, work=", max_input_tokens: 500")
    assert [after for _, after, _ in sent(plan)] == [None, (0,), None]
    assert plan.notes[1:3] == (
        "trace: dropped 1 of 4 rows: input_tokens above 500",
        "trace: 1 session lost turns to this: what followed a dropped turn follows what that one followed, with its "
        "own think time",
    )
    first, third, _ = plan.stages[0].requests
    assert third.runs[0].key == first.runs[0].key
    assert third.runs[0].tokens == 250, "all that it shared with the dropped one, whose first 100 are the first turn's"
    capped = planned(tmp_path, rows, work=", max_input_tokens: 500, fit: cap")
    assert [one.prompt_tokens for one in capped.stages[0].requests] == [100, 500, 300, 120]
    assert [one.after for one in capped.stages[0].requests] == [None, (0,), (1,), None]


def test_a_coarse_clock_is_spread_over_its_steps(tmp_path: Path) -> None:
    rows = [row(3.0 * (number // 10), number + 1) for number in range(2_000)]
    plan = planned(tmp_path, rows, stages="stages: [{name: a, speed: 1}]", time_quantum_s=3.0)
    due = [one.due_s or 0.0 for one in plan.stages[0].requests]
    assert due == sorted(due)
    gaps = [later - earlier for earlier, later in pairwise(due)]
    mean = sum(gaps) / len(gaps)
    cv = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 / mean
    assert 0.9 < cv < 1.1
    for one in plan.stages[0].requests:
        step = (one.prompt_tokens - 1) // 10 * 3.0
        assert step <= (one.due_s or 0.0) < step + 3.0
    note = "trace: the trace's clock has steps of 3.00 s; 100 % of the rows share their instant: "
    assert f"{note}each is spread evenly over its step (dequantize)" in plan.notes
    again = planned(tmp_path, rows, stages="stages: [{name: a, speed: 1}]", time_quantum_s=3.0)
    assert again == plan
    off = planned(tmp_path, rows, ", dequantize: off", time_quantum_s=3.0)
    assert [one.due_s for one in off.stages[0].requests][:11] == [0.0] * 10 + [1.5]
    assert f"{note}sent in batches as they stand (dequantize: off)" in off.notes


def test_scaled_tokens_keep_blocks_and_proportions(tmp_path: Path) -> None:
    rows = [
        row(0, 1100, 352, blocks=(1, 2, 3), block_tokens=512),
        row(1, 1024, 32, blocks=(1, 2), block_tokens=512),
        row(2, 513, 1, blocks=(1,), block_tokens=512),  # the rest has no id
        row(3, 64, 320, prefix_tokens=32),
    ]
    plan = planned(tmp_path, rows, ", scale_tokens: 0.03125")
    requests = plan.stages[0].requests
    assert [[(run.key, run.tokens) for run in one.runs] for one in requests] == [
        [("b:replay:1", 16), ("b:replay:2", 16), ("b:replay:3", 3)],
        [("b:replay:1", 16), ("b:replay:2", 16)],
        [("b:replay:1", 16), ("u:replay:2", 1)],
        [("u:replay:3", 2)],
    ]
    assert [one.output_tokens for one in requests] == [11, 1, 1, 10]
    assert plan.notes[1] == (
        "trace: scale_tokens 0.03125: a block of 512 tokens became one of 16, so the scale is 0.03125; ids and thus "
        "the reused share are kept; prompt tokens 2,701 -> 86, output tokens 705 -> 23"
    )
    rough = planned(tmp_path, [row(0, 64, 9, blocks=(1, 2, 3, 4), block_tokens=16)], ", scale_tokens: 0.1")
    assert "trace: scale_tokens 0.1 is not what blocks of 16 tokens allow: use a multiple of 1/16" in rough.notes


def test_a_bound_is_of_scaled_tokens(tmp_path: Path) -> None:
    plan = planned(
        tmp_path, [row(0, 1000), row(1, 5000)], ", scale_tokens: 0.5", work=", max_input_tokens: 600, fit: drop"
    )
    assert [one.prompt_tokens for one in plan.stages[0].requests] == [500]


def test_a_replay_survives_json_and_is_equal_under_every_hash_seed(tmp_path: Path) -> None:
    lines = ['{"loadgen_trace":1,"source":"x","format":"x","rows_read":4,"rows_kept":4,"time_quantum_s":1.0}']
    lines += [
        '{"t":0,"in":30,"out":5,"id":"a","session":"s"}',
        '{"t":0,"in":25,"out":5,"id":"b","after":["a"],"think":1}',
        '{"t":1,"in":60,"out":5,"session":"s","after":["a","b"],"think":1,"prefix":20}',
        '{"t":2,"in":70,"out":5,"session":"s","think":2}',
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    file = tmp_path / "s.yaml"
    file.write_text("name: x\nworkload: {trace: {path: t.jsonl}}\nstages: [{name: a, speed: 1}]\n")
    program = (
        "import sys; from pathlib import Path; import msgspec\n"
        "from loadgen.cli.plan import planned; from loadgen.workload import prompts\n"
        "from loadgen.records import Vocabulary\n"
        "plan = planned(sys.argv[1])[2]; ids = Vocabulary(kind='token_ids', low=1, high=999)\n"
        "made = [prompts.render(r, seed=1, salt='a', vocabulary=ids) for r in plan.stages[0].requests]\n"
        "sys.stdout.buffer.write(msgspec.json.encode((plan, made)))\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", program, str(file)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "4711")
    ]
    assert told[0] == told[1]
    plan, made = msgspec.json.decode(told[0], type=tuple[Plan, list[list[int]]])
    requests: tuple[Request, ...] = plan.stages[0].requests
    assert [one.after for one in requests] == [None, (0,), (0, 1), (2,)]
    assert [len(ids) for ids in made] == [30, 25, 60, 70]
    assert made[2][:20] == made[0][:20]
    assert made[2][20] != made[0][20]
    assert made[3][:60] == made[2]
