import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from loadgen.errors import UserError
from loadgen.records import Plan, Run, Trace, TraceRow
from loadgen.workload import plan as plans, scenario
from loadgen.workload.scenario import Scenario

TEXT = """
name: x
seed: 5
workload:
  input_tokens: {quantiles: {10: 20, 50: 60, 100: 200}}
  output_tokens: {range: [5, 9]}
  shared_prefix: {tokens: 30, groups: 2}
stages:
  - {name: one, concurrency: 1, requests: 6, input_tokens: 64, output_tokens: 4, shared_prefix: null}
  - {name: full, concurrency: 8, requests: 20}
  - {name: steady, rate: 4, burstiness: 2, duration: 10s}
limit: {requests_per_second: 50}
"""

TRACED = """
name: x
workload: {trace: {path: t}}
stages:
  - {name: replay, speed: 2}
"""


def parsed(text: str) -> Scenario:
    return scenario.parse(text, Path("s.yaml"))


def planned(text: str) -> Plan:
    return plans.build(parsed(text))


def traced(text: str, trace: Trace, folder: Path) -> Plan:
    (folder / "t").touch()
    return plans.build(scenario.parse(text, folder / "s.yaml"), trace)


def trace(*rows: TraceRow, dropped: int = 0) -> Trace:
    reasons = {"no output tokens": dropped} if dropped else {}
    read = len(rows) + dropped
    return Trace(source="t", format="azure", rows=rows, rows_read=read, dropped=reasons, notes=("told",))


def row(at_s: float, inputs: int = 100, outputs: int = 10, blocks: tuple[int, ...] = ()) -> TraceRow:
    return TraceRow(
        at_s=at_s, input_tokens=inputs, output_tokens=outputs, blocks=blocks, block_tokens=512 if blocks else None
    )


def test_stages_and_their_specs() -> None:
    plan = planned(TEXT)
    one, full, steady = (stage.spec for stage in plan.stages)
    assert [spec.role for spec in (one, full, steady)] == ["one_stream", "saturated", "open_loop"]
    assert (one.planned, one.warmup, full.planned, full.warmup, steady.planned, steady.warmup) == (6, 1, 20, 8, 40, 4)
    assert (steady.rate_per_s, steady.burstiness_cv, steady.duration_s) == (4, 2, None)
    assert {spec.limit_per_s for spec in (one, full, steady)} == {50}
    for stage in plan.stages:
        assert [request.index for request in stage.requests] == list(range(stage.spec.planned))
        assert [request.index for request in stage.warmup] == list(range(stage.spec.warmup))
        assert all((request.due_s is None) == (stage.spec.role != "open_loop") for request in stage.requests)


def test_every_request_has_contents_of_its_own() -> None:
    plan = planned(TEXT)
    requests = [request for stage in plan.stages for request in (*stage.warmup, *stage.requests)]
    own = [request.runs[-1].key for request in requests]
    assert len(set(own)) == len(own)
    assert all(key.startswith("u:") for key in own)
    assert all(run.tokens > 0 for request in requests for run in request.runs)


def test_groups_take_turns_and_a_short_prompt_holds_the_beginning_of_its_prefix() -> None:
    plan = planned(TEXT)
    for request in plan.stages[1].requests:
        prefix, own = request.runs
        assert prefix == Run(f"p:{request.index % 2}", min(30, request.prompt_tokens - 1))
        assert own.tokens == request.prompt_tokens - prefix.tokens
    assert all(len(request.runs) == 1 for request in plan.stages[0].requests)
    short = sum(request.prompt_tokens <= 30 for request in plan.stages[1].requests)
    assert short > 0
    assert f"full: {short} of 20 prompts are no longer than the shared prefix and hold only its beginning" in plan.notes


def test_another_seed_or_length_gives_another_digest_a_name_does_not() -> None:
    base = planned(TEXT).digest
    assert planned(TEXT).digest == base
    assert planned(TEXT.replace("name: x", "name: y\ndescription: other")).digest == base
    for old, new in (("seed: 5", "seed: 6"), ("[5, 9]", "[5, 10]"), ("rate: 4", "rate: 5"), ("groups: 2", "groups: 3")):
        assert planned(TEXT.replace(old, new)).digest != base
    assert planned(TEXT.replace("workload:\n", "workload:\n  endpoint: chat\n")).digest != base


def test_a_changed_stage_leaves_the_others_as_they_were() -> None:
    base, other = planned(TEXT), planned(TEXT.replace("requests: 20", "requests: 30"))
    assert base.stages[0] == other.stages[0]
    assert base.stages[2] == other.stages[2]
    assert base.stages[1] != other.stages[1]


def test_equal_in_every_process_and_under_every_hash_seed(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(TEXT)
    program = (
        "import sys; from pathlib import Path; from loadgen.workload import plan, prompts, scenario\n"
        "from loadgen.records import Vocabulary\n"
        "built = plan.build(scenario.load(Path(sys.argv[1])))\n"
        "ids = Vocabulary(kind='token_ids', low=1, high=999)\n"
        "print(built.digest, prompts.render(built.stages[1].requests[0], seed=5, salt='a', vocabulary=ids))\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", program, str(file)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4711")
    ]
    assert told[0].startswith(planned(TEXT).digest)
    assert told[0] == told[1] == told[2]


def test_a_plan_goes_through_json_unchanged() -> None:
    plan = planned(TEXT)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_bounds_are_kept_and_told() -> None:
    text = TEXT.replace("  shared", "  max_input_tokens: 100\n  max_output_tokens: 7\n  shared")
    plan = planned(text)
    full = plan.stages[1].requests
    assert max(request.prompt_tokens for request in full) <= 100
    assert max(request.output_tokens for request in full) == 7
    assert "full: 28.6 % of the given input_tokens lie above 100 and are left out" in plan.notes
    assert any(note.startswith("full: cut 8 of 20 outputs to 7 tokens") for note in plan.notes)
    capped = planned(text.replace("  shared", "  fit: cap\n  shared"))
    assert max(request.prompt_tokens for request in capped.stages[1].requests) == 100
    assert any("prompts to 100 tokens" in note for note in capped.notes)


def test_a_closed_loop_bounded_by_time_is_planned_generously() -> None:
    def stage(keys: str) -> Plan:
        return planned("name: x\nworkload: {input_tokens: 4, output_tokens: 2}\nstages: [{name: a, %s}]" % keys)  # noqa: UP031

    by_time = stage("concurrency: 2, duration: 3s").stages[0].spec
    assert (by_time.planned, by_time.duration_s) == (120, 3)
    assert stage("concurrency: 2, duration: 3s, requests: 7").stages[0].spec.planned == 7
    assert stage("concurrency: 50, duration: 1ms").stages[0].spec.planned == 50
    assert stage("concurrency: 5, duration: 10h, warmup: 0").stages[0].spec.planned == 100_000
    assert stage("concurrency: 5, requests: 5, warmup: 0").stages[0].warmup == ()
    with pytest.raises(UserError, match=r"stages\[0\] \(a\): 3,600,000 requests; should be at most 1,000,000"):
        stage("rate: 1000, duration: 1h")


def test_a_replay_keeps_the_traces_times_lengths_and_order(tmp_path: Path) -> None:
    rows = trace(row(0), row(3, 50, 5), row(3.5, 70, 7), dropped=2)
    plan = traced(TRACED, rows, tmp_path)
    sent = plan.stages[0].requests
    assert [request.due_s for request in sent] == [0, 1.5, 1.75]
    assert [(request.prompt_tokens, request.output_tokens) for request in sent] == [(100, 10), (50, 5), (70, 7)]
    assert plan.stages[0].spec.speed == 2
    assert plan.notes == (
        "trace: 5 azure rows read",
        "trace: dropped 2 of 5 rows: no output tokens",
        "trace: told",
        "replay: 3.5 s of trace in 1.8 s (speed 2)",
    )


def test_window_and_bounds_of_a_trace_are_counted(tmp_path: Path) -> None:
    rows = trace(*(row(second, inputs=100 * second, outputs=10 * second) for second in range(1, 11)))
    text = TRACED.replace("{path: t}", "{path: t, window: [2, 8]}, max_input_tokens: 500, max_output_tokens: 30")
    plan = traced(text, rows, tmp_path)
    sent = plan.stages[0].requests
    assert [request.prompt_tokens for request in sent] == [200, 300, 400, 500]
    assert [request.output_tokens for request in sent] == [20, 30, 30, 30]
    assert [request.due_s for request in sent] == [0, 0.5, 1, 1.5]
    assert plan.notes[2:] == (
        "trace: told",
        "trace: dropped 2 of 6 rows: input_tokens above 500",
        "trace: cut 2 of 4 outputs to 30 tokens",
        "replay: 3.0 s of trace in 1.5 s (speed 2)",
    )
    assert plan.notes[1] == "trace: 6 rows lie in the window 2 s to 8 s"
    cut = traced(text.replace("max_output", "fit: cap, max_output"), rows, tmp_path)
    assert [request.prompt_tokens for request in cut.stages[0].requests] == [200, 300, 400, 500, 500, 500]
    assert "trace: cut 2 of 6 prompts to 500 tokens" in cut.notes


def test_nothing_left_of_a_trace_is_an_error_with_its_reasons(tmp_path: Path) -> None:
    text = TRACED.replace("{path: t}", "{path: t}, max_input_tokens: 5")
    with pytest.raises(UserError, match=r"t: no row is left to send: .*dropped 1 of 1 rows: input_tokens above 5"):
        traced(text, trace(row(0)), tmp_path)


def test_prefix_blocks_become_shared_runs_with_a_partial_last_one(tmp_path: Path) -> None:
    rows = trace(row(0, 1100, blocks=(1, 2, 3)), row(1, 512, blocks=(1,)), row(2, 30))
    sent = traced(TRACED, rows, tmp_path).stages[0].requests
    assert sent[0].runs == (Run("b:replay:1", 512), Run("b:replay:2", 512), Run("b:replay:3", 76))
    assert sent[1].runs == (Run("b:replay:1", 512),)
    assert sent[2].runs == (Run("u:replay:2", 30),)


def test_a_cut_prompt_loses_its_last_blocks(tmp_path: Path) -> None:
    text = TRACED.replace("{path: t}", "{path: t}, max_input_tokens: 600, fit: cap")
    sent = traced(text, trace(row(0, 1100, blocks=(1, 2, 3))), tmp_path).stages[0].requests
    assert sent[0].runs == (Run("b:replay:1", 512), Run("b:replay:2", 88))


def test_a_closed_loop_and_a_rate_over_a_trace(tmp_path: Path) -> None:
    rows = trace(*(row(second, 100 + second) for second in range(9)))
    text = TRACED + "  - {name: closed, concurrency: 3, requests: 5}\n  - {name: paced, rate: 2, duration: 2s}\n"
    replay, closed, paced = traced(text, rows, tmp_path).stages
    assert [request.prompt_tokens for request in closed.requests] == [100, 101, 102, 103, 104]
    assert [request.prompt_tokens for request in paced.requests] == [100, 101, 102, 103]
    assert all(request.due_s is not None and request.due_s < 2 for request in paced.requests)
    lengths = {request.prompt_tokens for request in replay.requests}
    assert {request.prompt_tokens for request in closed.warmup} <= lengths
    assert all(request.runs[0].key.startswith("u:closed:w") for request in closed.warmup)
    with pytest.raises(UserError, match=r"stages\[1\] \(closed\)\.requests: 10: should be at most 9"):
        traced(text.replace("requests: 5", "requests: 10"), rows, tmp_path)


def test_a_replay_can_be_cut_short(tmp_path: Path) -> None:
    rows = trace(*(row(second) for second in range(9)))
    by_time = traced(TRACED.replace("speed: 2", "speed: 2, duration: 2s"), rows, tmp_path)
    assert [request.due_s for request in by_time.stages[0].requests] == [0, 0.5, 1, 1.5]
    by_count = traced(TRACED.replace("speed: 2", "speed: 2, requests: 3"), rows, tmp_path)
    assert by_count.stages[0].spec.planned == 3


def test_a_trace_of_one_row(tmp_path: Path) -> None:
    plan = traced(TRACED, trace(row(0)), tmp_path)
    assert plan.stages[0].spec.planned == 1
    assert plan.stages[0].spec.warmup == 2


def test_own_lengths_beside_a_trace(tmp_path: Path) -> None:
    text = TRACED + "  - {name: sweep, concurrency: 1, requests: 4, input_tokens: {range: [1, 80]}, output_tokens: 3}\n"
    sweep = traced(text, trace(row(0)), tmp_path).stages[1]
    assert {request.output_tokens for request in sweep.requests} == {3}
    assert sorted((request.prompt_tokens - 1) // 20 for request in sweep.requests) == [0, 1, 2, 3]


def test_a_shared_prefix_may_be_in_the_cache_from_before_the_stage() -> None:
    full, steady = planned(TEXT).stages[1:]
    assert full.spec.reuse is not None
    assert steady.spec.reuse is not None
    for stage in (full, steady):
        shared = sum(min(30, one.prompt_tokens - 1) for one in stage.requests)
        assert stage.spec.reuse is not None
        assert stage.spec.reuse.ratios[0] == pytest.approx(shared / sum(one.prompt_tokens for one in stage.requests))
        assert stage.spec.reuse.lru_ratios == ()
    assert planned(TEXT).stages[0].spec.reuse is None


def test_a_large_plan_is_built() -> None:
    text = TEXT.replace("requests: 20", "requests: 1e5")
    assert planned(text).stages[1].spec.planned == 100_000
