import pytest
from fakes import synthetic
from fakes.synthetic import lengths, one_stream, saturated

from loadgen.analysis.judge import judge

STAGES = (one_stream(lengths(4, (64, 1200), (30, 40))), saturated(lengths(40, (64, 128), (16, 48)), concurrency=8))


@pytest.fixture(scope="module")
def run():
    return synthetic.experiment((synthetic.BF16, synthetic.FP8), STAGES, repeats=2)


def changed(run, block, which, change):
    samples = tuple(change(s) if (s.stage, s.index) in which else s for s in run.blocks[block].samples)
    return synthetic.edited(run, block, samples=tuple(s for s in samples if s is not None))


def refused(run, stage):
    report = judge(run)
    in_stage = [d for d in report.differences if d.stage == stage]
    assert in_stage
    assert {d.verdict for d in in_stage} == {"cannot tell"}
    assert {d.ratio.center for d in in_stage} == {None}
    assert all("not compared: the work differs" in d.note for d in in_stage)
    others = [d for d in report.differences if d.stage != stage]
    assert all(d.ratio.center is not None for d in others)
    return report


def test_a_failed_request_is_named_by_kind(run):
    report = refused(changed(run, 1, {("saturated", 3)}, synthetic.failing), "saturated")
    assert "saturated: not the same work: fp8: 1 of 80 requests failed (1 truncated)" in report.unintended
    assert "fp8: failed requests: 1 truncated" in report.warnings
    assert report.arms[1].failures == {"truncated": 1}
    headline = next(one for one in report.headlines if one.role == "saturated")
    assert headline.verdict == "cannot tell"
    assert "1 truncated" in headline.sentence
    memory = next(one for one in report.findings if one.cause == "unused memory")
    assert memory.verdict == "cannot tell"
    assert "did not do the same work" in memory.claim


def test_a_missing_request_is_counted(run):
    report = refused(changed(run, 0, {("saturated", 3)}, lambda s: None), "saturated")
    assert any(
        "bf16: 1 of 2 blocks completed fewer requests than others (39 of 40" in line for line in report.unintended
    )


def test_other_output_lengths_are_refused(run):
    report = refused(
        changed(run, 1, {("saturated", 3)}, lambda s: synthetic.replace_record(s, output_tokens=5)), "saturated"
    )
    assert any("output tokens differ in 1 of 40 requests (in all: bf16 " in line for line in report.unintended)


def test_other_prompt_lengths_are_refused_and_one_stream_falls_silent(run):
    report = refused(
        changed(run, 1, {("one-stream", 0)}, lambda s: synthetic.replace_record(s, prompt_tokens=9)), "one-stream"
    )
    assert report.decomposition is None
    found = {finding.cause: finding.verdict for finding in report.findings}
    assert found["conversion"] == found["short context"] == "not observable"


def test_other_finish_reasons_are_refused(run):
    report = refused(
        changed(
            run, 2, {("saturated", 0), ("saturated", 1)}, lambda s: synthetic.replace_record(s, finish_reason="stop")
        ),
        "saturated",
    )
    assert any("finish reasons differ in 2 of 40 requests" in line and "2 stop" in line for line in report.unintended)


def test_a_stage_that_one_arm_lacks(run):
    everything = {("saturated", k) for k in range(40)}
    lacking = changed(changed(run, 1, everything, lambda s: None), 2, everything, lambda s: None)
    report = judge(lacking)
    assert any("fp8 has no request of this stage" in line for line in report.unintended)
    assert next(one for one in report.headlines if one.role == "saturated").verdict == "cannot tell"


def test_unreported_token_counts_are_said_but_compared(run):
    for number, block in enumerate(run.blocks):
        bare = tuple(synthetic.replace_record(s, output_tokens=None, prompt_tokens=None) for s in block.samples)
        run = synthetic.edited(run, number, samples=bare)
    report = judge(run)
    assert report.unintended == ()
    assert any("one event is taken as one token" in line for line in report.warnings)
    assert all(d.ratio.center is not None for d in report.differences)


def test_a_run_of_one_arm_says_where_the_server_does_not_count():
    alone = synthetic.experiment((synthetic.BF16,), STAGES, repeats=2)
    uncounted = changed(alone, 0, {("saturated", 3)}, lambda s: synthetic.replace_record(s, output_tokens=None))
    said = "saturated: bf16: no token counts from the server for 1 requests: one event is taken as one token"
    assert said in judge(uncounted).warnings
    assert said not in judge(alone).warnings
