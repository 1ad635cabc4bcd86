import pytest
from fakes import synthetic
from fakes.batching import Noise
from fakes.synthetic import BF16, FP8, lengths, one_stream, open_loop, saturated

from loadgen.analysis.judge import judge

CLOSED = (one_stream(lengths(4, (64, 1200), (30, 40))), saturated(lengths(40, (64, 128), (32, 48)), concurrency=8))
OPEN = (open_loop(lengths(30, (64, 128), (32, 48)), 2.0),)


def judged(noise, stages=CLOSED):
    return judge(synthetic.experiment((BF16, FP8), stages, repeats=2, noise=noise))


def check(report, name):
    return next(one for one in report.innocence if one.name == name)


def late(report, stage):
    return {d.quantity for d in report.differences if d.stage == stage and "the client was late" in d.note}


def test_an_innocent_client_passes_every_check():
    report = judged(Noise())
    assert {one.passed for one in report.innocence} == {True}
    assert len(report.innocence) == 8
    assert not any("late" in line for line in report.warnings)


def test_a_loop_that_lags_withdraws_everything():
    report = judged(Noise(loop_lag_s=0.05))
    assert check(report, "saturated: event-loop lag").passed is False
    assert {d.verdict for d in report.differences} == {"cannot tell"}
    assert report.headlines[1].verdict == "cannot tell"
    assert "the client was late: event-loop lag on bf16" in report.headlines[1].sentence
    assert any("saturated: the client was late" in line and "core of its own" in line for line in report.warnings)
    assert report.decomposition is None


def test_rare_lag_withdraws_the_tails_alone():
    run = synthetic.experiment((BF16, FP8), CLOSED, repeats=2)
    for number, block in enumerate(run.blocks):
        health = tuple(
            synthetic.replace_record(h, loop_lag_max_s=0.1 if k % 10 == 0 else 0.001)
            for k, h in enumerate(block.health)
        )
        run = synthetic.edited(run, number, health=health)
    report = judge(run)
    assert late(report, "saturated") == {"itl_p95_s", "itl_p99_s", "tpot_p95_s", "tpot_p99_s"}
    assert any("the verdicts concerned are withdrawn" in line for line in report.warnings)


def test_a_client_without_cpu_to_spare_withdraws_everything():
    report = judged(Noise(client_cpu_ratio=0.95))
    assert check(report, "one-stream: client CPU").passed is False
    assert {d.verdict for d in report.differences} == {"cannot tell"}


def test_a_late_open_loop_withdraws_everything_and_a_closed_one_has_no_due_times():
    report = judged(Noise(send_lag_s=0.2), OPEN)
    assert check(report, "open: send lag").passed is False
    assert {d.verdict for d in report.differences} == {"cannot tell"}
    assert not any("send lag" in one.name for one in judged(Noise()).innocence)


def test_a_ttft_that_the_server_did_not_see_withdraws_latencies_alone():
    """Every event reaches the client 100 ms late: TTFT is wrong, gaps are not."""
    report = judged(Noise(server_shift_s=0.1))
    assert check(report, "saturated: TTFT as the server saw it").passed is False
    assert check(report, "saturated: ITL as the server saw it").passed is True
    found = late(report, "saturated")
    assert "ttft_p50_s" in found
    assert "e2e_p50_s" in found
    assert "itl_p50_s" not in found
    assert "output_tokens_per_s" not in found


def test_gaps_that_the_server_did_not_see_withdraw_them():
    run = synthetic.experiment((BF16, FP8), CLOSED, repeats=2)
    for number, block in enumerate(run.blocks):
        stretched = tuple(
            synthetic.replace_record(
                s, events_s=tuple(at + 0.01 * k for k, at in enumerate(s.events_s)), end_s=s.end_s + 0.5
            )
            for s in block.samples
        )
        run = synthetic.edited(run, number, samples=stretched)
    report = judge(run)
    assert check(report, "one-stream: ITL as the server saw it").passed is False
    assert {"itl_p50_s", "tpot_p50_s"} <= late(report, "one-stream")
    assert "ttft_p50_s" not in late(report, "one-stream")


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_a_server_that_counted_others_requests_is_not_held_against_the_client(factor):
    run = synthetic.experiment((BF16, FP8), CLOSED, repeats=2)
    for number, block in enumerate(run.blocks):
        scrapes = tuple(
            synthetic.replace_record(
                s,
                engines=tuple(
                    synthetic.replace_record(
                        e, values={k: v * factor if k.startswith(("ttft", "itl")) else v for k, v in e.values.items()}
                    )
                    for e in s.engines
                ),
            )
            for s in block.scrapes
        )
        run = synthetic.edited(run, number, scrapes=scrapes)
    found = check(judge(run), "saturated: TTFT as the server saw it")
    assert found.passed is None
    assert "events there" in found.figure
