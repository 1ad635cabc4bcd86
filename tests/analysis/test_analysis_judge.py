import msgspec
import numpy as np
import pytest
from fakes import synthetic
from fakes.batching import Engine, Noise
from fakes.synthetic import Arm, lengths, one_stream, open_loop, saturated

from loadgen.analysis.judge import judge
from loadgen.records import BlockEnd, Report, Slo

SMALL = (one_stream(lengths(6, (64, 1200), (40, 60))), saturated(lengths(60, (64, 256), (32, 96)), concurrency=16))


def headline(report, role):
    return next(one for one in report.headlines if one.role == role)


def difference(report, stage, quantity):
    return next(one for one in report.differences if (one.stage, one.quantity) == (stage, quantity))


@pytest.fixture(scope="module")
def demo():
    return synthetic.demo()


@pytest.fixture(scope="module")
def report(demo):
    return judge(demo)


def test_a_demo_says_that_saturation_pays_and_at_what_price(report):
    found = headline(report, "saturated")
    assert found.verdict == "pays"
    assert found.sentence.startswith("At saturation fp8 pays: output throughput 1.")
    assert "while this got worse: ITL p50 1.5" in found.sentence
    assert difference(report, "saturated", "output_tokens_per_s").verdict == "better"
    assert difference(report, "saturated", "makespan_s").verdict == "better"
    assert difference(report, "saturated", "itl_p50_s").verdict == "worse"


def test_throughput_agrees_with_what_the_engine_does_in_the_long_run(report):
    """Steady windows of 100 requests against 2,000 requests without block noise: within 5 %."""
    endless = saturated(lengths(2000, (64, 256), (64, 256)))
    arms = (synthetic.BF16, synthetic.FP8)
    run = synthetic.experiment(arms, (endless,), repeats=1, noise=Noise(block=0))
    rates = [
        sum(s.output_tokens for s in block.samples) / (block.marks[0].ended_s - block.marks[0].started_s)
        for block in run.blocks
    ]
    truth = rates[1] / rates[0]
    found = difference(report, "saturated", "output_tokens_per_s").ratio
    assert found.center == pytest.approx(truth, rel=0.05)
    assert found.lo > 1


def test_ratio_is_that_of_the_summaries(report):
    one = difference(report, "saturated", "ttft_p50_s")
    assert one.ratio.center == pytest.approx(one.test.center / one.base.center)
    by_arm = {s.arm: s for s in report.summaries if (s.stage, s.quantity) == ("saturated", "ttft_p50_s")}
    assert by_arm["bf16"].estimate.center == pytest.approx(one.base.center)
    assert len(by_arm["fp8"].by_block) == 4


def test_a_report_goes_to_disk_and_back(report):
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


def test_judging_twice_gives_the_same(demo, report):
    assert judge(demo) == report


def test_arms_order_and_fates(report):
    assert report.order == ("bf16", "fp8", "fp8", "bf16", "bf16", "fp8", "fp8", "bf16")
    assert [(arm.name, arm.blocks) for arm in report.arms] == [("bf16", 4), ("fp8", 4)]
    assert report.arms[0].requests == {"one-stream": (32, 32, 32, 0), "saturated": (400, 400, 400, 0)}
    assert report.unintended == ()
    assert report.warnings == ()


def test_a_slope_ratio_that_may_be_one_neither_blames_nor_clears_the_kernel(report):
    ratio = report.decomposition.slope_ratio
    assert ratio.lo < 1 < ratio.center
    assert {finding.cause: finding.verdict for finding in report.findings}["backend"] == "cannot tell"


def test_tails_of_few_values_say_so(report):
    tail = next(s for s in report.summaries if (s.stage, s.arm, s.quantity) == ("saturated", "fp8", "ttft_p99_s"))
    assert tail.estimate.warnings == ("only 1.0 of 100 values a block lie beyond p99",)
    body = next(s for s in report.summaries if (s.stage, s.arm, s.quantity) == ("saturated", "fp8", "itl_p99_s"))
    assert body.estimate.warnings == ()


def test_curves_are_drawn_from_the_middle_block_first(report):
    drawn = [c for c in report.curves if (c.stage, c.arm, c.quantity) == ("saturated", "fp8", "kv_usage_ratio")]
    assert [c.block for c in drawn] == [5, 1, 2, 6]
    assert all(len(c.x) == len(c.y) <= 300 for c in drawn)
    assert 0 <= drawn[0].x[0] < 0.3
    spread = [c for c in report.curves if c.kind == "quantile" and c.stage == "saturated"]
    assert {(c.arm, c.quantity) for c in spread} == {(a, q) for a in ("bf16", "fp8") for q in ("ttft_s", "itl_s")}
    assert all(len(c.x) == 101 and list(c.y) == sorted(c.y) for c in spread)
    preempted = [c for c in report.curves if (c.stage, c.arm, c.quantity) == ("saturated", "bf16", "preemptions")]
    assert preempted[0].y[-1] > preempted[0].y[0] >= 0


def test_equals_show_no_difference():
    arms = (Arm(name="bf16"), Arm(name="bf16"))
    for seed in range(3):
        report = judge(synthetic.experiment(arms, SMALL, repeats=3, seed=seed))
        assert (report.base, report.test) == ("bf16", "bf16#2")
        assert [one.verdict for one in report.headlines] == ["no difference shown"] * 2, seed
        assert "would have shown from" in report.headlines[1].sentence
        verdicts = {finding.cause: finding.verdict for finding in report.findings}
        assert set(verdicts.values()) == {"does not hold"}, verdicts


def test_one_arm_is_summarised():
    run = synthetic.experiment((synthetic.BF16,), SMALL, repeats=2)
    report = judge(run)
    assert report.test is None
    assert report.headlines == report.differences == report.findings == report.checklist == ()
    assert report.decomposition is None
    assert {s.stage for s in report.summaries} == {"one-stream", "saturated"}
    assert report.innocence
    assert report.curves


def test_further_arms_stay_in_the_summaries():
    third = Arm(name="fp8-e5m2", kv_dtype="fp8_e5m2", engine=Engine(capacity_tokens=8192))
    report = judge(synthetic.demo(repeats=2, arms=(synthetic.BF16, synthetic.FP8, third)))
    assert report.test == "fp8"
    assert [arm.name for arm in report.arms] == ["bf16", "fp8", "fp8-e5m2"]
    assert any(s.arm == "fp8-e5m2" for s in report.summaries)
    assert "of fp8-e5m2 there are summaries only" in report.warnings[-1]


def test_one_block_per_arm_cannot_tell(demo):
    report = judge(synthetic.replace_record(demo, blocks=demo.blocks[:2]))
    one = difference(report, "saturated", "output_tokens_per_s")
    assert (one.verdict, one.ratio.lo) == ("cannot tell", None)
    assert one.ratio.center > 1.1
    assert "an interval needs at least 2" in one.note
    assert headline(report, "saturated").verdict == "cannot tell"
    assert "(seen: output throughput 1." in headline(report, "saturated").sentence


def test_blocks_that_broke_are_left_out_and_said(demo):
    broken = synthetic.edited(demo, 7, end=None, samples=demo.blocks[7].samples[:20])
    report = judge(broken)
    assert [arm.blocks for arm in report.arms] == [3, 4]
    assert report.warnings == (
        "bf16: left out of the comparison: block 7 was cut off; run again with --resume to complete it",
    )
    assert headline(report, "saturated").verdict == "pays"


def test_a_block_that_was_made_up_for_is_not_asked_for_again(demo):
    broken = synthetic.edited(demo, 7, end=None, samples=demo.blocks[7].samples[:20])
    report = judge(synthetic.replace_record(broken, blocks=(*broken.blocks, demo.blocks[7])))
    assert [arm.blocks for arm in report.arms] == [4, 4]
    assert report.warnings == ()


def test_samples_that_are_gone_or_twice_there_are_told(demo):
    samples = demo.blocks[0].samples
    kept = tuple(sample for sample in samples if sample.stage != "saturated")
    gone = "bf16: block 0, saturated: 100 requests were sent and 0 are on record: files of this run were damaged"
    assert gone in judge(synthetic.edited(demo, 0, samples=kept)).warnings
    assert any("are on record" in told for told in judge(synthetic.edited(demo, 0, samples=samples * 2)).warnings)


def test_an_interrupted_block_is_left_out(demo):
    report = judge(synthetic.edited(demo, 6, end=BlockEnd(ended_s=1.0, how="server_died")))
    assert report.warnings[0].startswith("fp8: left out of the comparison: block 6 server died")
    assert report.arms[1].blocks == 3


def test_if_no_block_is_complete_what_there_is_is_used(demo):
    run = synthetic.replace_record(demo, blocks=demo.blocks[:1])
    run = synthetic.edited(run, 0, end=None, samples=demo.blocks[0].samples[:50])
    report = judge(run)
    assert "bf16: no block is complete (block 0 was cut off)" in report.warnings[0]
    assert any(s.arm == "bf16" and s.stage == "saturated" for s in report.summaries)
    assert headline(report, "saturated").verdict == "cannot tell"


def test_nothing_at_all_is_survived(demo):
    for blocks in (
        (),
        (synthetic.replace_record(demo.blocks[0], samples=(), scrapes=(), health=(), marks=(), end=None),),
    ):
        report = judge(synthetic.replace_record(demo, blocks=blocks))
        assert all(one.verdict == "cannot tell" for one in report.headlines)
        assert report.differences == ()


def test_without_scrapes_health_and_facts_the_rest_stands(demo):
    run = demo
    for number, block in enumerate(demo.blocks):
        bare = msgspec.structs.replace(
            block.facts, backends=(), capacity_tokens=None, argv=(), kv_dtype=None, host=None
        )
        run = synthetic.edited(run, number, scrapes=(), health=(), facts=bare)
    report = judge(run)
    assert headline(report, "saturated").verdict == "pays"
    verdicts = {finding.cause: finding.verdict for finding in report.findings}
    assert verdicts["unused memory"] == "not observable"
    assert verdicts["backend"] == "not observable"
    assert {check.passed for check in report.innocence} == {None}
    assert any("not confirmed that the base's cache is unquantized" in line for line in report.warnings)


def test_zero_gaps_give_no_ratio_and_no_crash(demo):
    run = demo
    for number, block in enumerate(demo.blocks):
        together = tuple(
            synthetic.replace_record(s, events_s=(s.events_s[-1],) * len(s.events_s)) for s in block.samples
        )
        run = synthetic.edited(run, number, samples=together)
    report = judge(run)
    one = difference(report, "saturated", "itl_p50_s")
    assert (one.verdict, one.ratio.center) == ("cannot tell", None)
    assert "zero" in one.note


def test_open_loop_and_slo():
    work = lengths(60, (64, 256), (32, 96))
    fast = Arm(name="fast", kv_dtype="fp8", engine=Engine(step_s=0.004, per_sequence_s=0.0001, capacity_tokens=8192))
    run = synthetic.experiment(
        (synthetic.BF16, fast), (open_loop(work, 3.0),), repeats=3, slo=Slo(ttft_s=0.2, tpot_s=0.05)
    )
    report = judge(run)
    found = headline(report, "open_loop")
    assert found.verdict == "pays"
    assert "TTFT from due p50 0." in found.sentence
    assert difference(report, "open", "goodput_per_s").verdict in ("better", "no difference shown")
    assert any(check.name == "open: send lag" and check.passed for check in report.innocence)


def test_bound_by_time_is_compared_with_a_warning():
    timed = saturated(lengths(400, (64, 256), (32, 96)), concurrency=16, duration_s=15.0)
    report = judge(synthetic.experiment((synthetic.BF16, synthetic.FP8), (timed,), repeats=3))
    assert report.unintended == ()
    assert any("equal time, not equal work" in line for line in report.warnings)
    assert difference(report, "saturated", "output_tokens_per_s").ratio.lo is not None


def test_unequal_numbers_of_blocks(demo):
    report = judge(synthetic.replace_record(demo, blocks=demo.blocks[:5]))
    one = difference(report, "saturated", "output_tokens_per_s")
    assert (one.base.n, one.test.n, one.ratio.n) == (3, 2, 2)
    assert one.verdict == "better"


def test_several_tokens_per_event(demo):
    run = demo
    for number, block in enumerate(demo.blocks):
        paired = tuple(synthetic.replace_record(s, events_s=s.events_s[::2]) for s in block.samples)
        run = synthetic.edited(run, number, samples=paired)
    report = judge(run)
    assert any("gaps are between events, not tokens" in line for line in report.decomposition.warnings)
    tokens = [s for s in report.summaries if (s.stage, s.quantity) == ("saturated", "itl_p50_s")]
    assert all("several tokens came in one event" in s.estimate.warnings[-1] for s in tokens)
    assert "saturated: fp8: several tokens came in one event: ITL is between events" in "; ".join(report.warnings)
    was = difference(judge(demo), "saturated", "output_tokens_per_s").base.center
    assert difference(report, "saturated", "output_tokens_per_s").base.center == pytest.approx(was, rel=0.02)


def test_gaps_are_not_compared_where_one_arm_alone_puts_several_tokens_into_an_event(demo):
    run = demo
    for number, block in enumerate(demo.blocks):
        if block.manifest.arm == "fp8":
            paired = tuple(synthetic.replace_record(s, events_s=s.events_s[::2]) for s in block.samples)
            run = synthetic.edited(run, number, samples=paired)
    report = judge(run)
    for quantity in ("itl_p50_s", "itl_p99_s"):
        one = difference(report, "saturated", quantity)
        assert one.verdict == "cannot tell"
        assert one.note.startswith("cannot tell: an event holds 1 tokens on bf16 and 1.99 on fp8: ")
    assert difference(report, "saturated", "output_tokens_per_s").verdict == "better"
    assert report.decomposition is None
    assert {f.cause: f.verdict for f in report.findings}["conversion"] == "not observable"


def test_false_alarms_of_headlines_over_many_equal_experiments():
    """Thirty whole A/A experiments: at most 5 % false headlines expected; six or more have a chance below 0.4 %."""
    arms = (Arm(name="a"), Arm(name="b"))
    stages = (saturated(lengths(30, (32, 64), (8, 24)), concurrency=8),)
    wrong = sum(
        judge(synthetic.experiment(arms, stages, repeats=3, seed=100 + seed)).headlines[0].verdict
        != "no difference shown"
        for seed in range(30)
    )
    assert wrong <= 5


def test_drift_does_not_pass_for_a_difference():
    arms = (Arm(name="a"), Arm(name="b"))
    run = synthetic.experiment(arms, SMALL, repeats=4, noise=Noise(drift=0.02))
    centers = [d.ratio.center for d in judge(run).differences if d.quantity == "output_tokens_per_s"]
    assert np.allclose(centers, 1, atol=0.05)
    assert all(one.verdict == "no difference shown" for one in judge(run).headlines)


def test_no_interval_reaches_below_zero():
    report = judge(synthetic.demo(repeats=2))
    lows = [row.estimate.lo for row in report.summaries if row.estimate.lo is not None]
    assert lows
    assert min(lows) >= 0


def with_waiting(run, waiting):
    """The run with as many requests waiting in every reading of an arm's metrics as `waiting` says."""
    for number, block in enumerate(run.blocks):
        scrapes = tuple(
            msgspec.structs.replace(
                scrape,
                engines=tuple(
                    msgspec.structs.replace(rank, values={**rank.values, "waiting": waiting[block.manifest.arm]})
                    for rank in scrape.engines
                ),
            )
            for scrape in block.scrapes
        )
        run = synthetic.edited(run, number, scrapes=scrapes)
    return run


@pytest.mark.parametrize(("bf16", "fp8", "said"), [(14.0, 0.0, True), (0.0, 14.0, True), (14.0, 9.0, False)])
def test_where_one_arm_queues_and_the_other_does_not_it_is_said(bf16, fp8, said):
    report = judge(with_waiting(synthetic.demo(repeats=2), {"bf16": bf16, "fp8": fp8}))
    found = [line for line in report.warnings if "would queue as well" in line]
    assert any("saturated: " in line for line in found) == said
    if said:
        assert "14.0 waiting on average" in found[-1]


def test_servers_that_stay_up_widen_every_interval(demo, report):
    up = judge(msgspec.structs.replace(demo, manifest=msgspec.structs.replace(demo.manifest, restart="never")))
    for one, other in zip(report.differences, up.differences, strict=True):
        assert other.ratio.center == one.ratio.center
        assert other.ratio.hi / other.ratio.lo >= np.exp(2 * 1.96 * np.sqrt(2) * 0.01)  # two starts of 1 % each
        assert other.ratio.hi > one.ratio.hi
    step, allowed = report.decomposition.intercept_difference_s, up.decomposition.intercept_difference_s
    assert allowed.hi - allowed.lo > step.hi - step.lo
    assert up.decomposition.slope_ratio.hi > report.decomposition.slope_ratio.hi
    assert headline(up, "saturated").verdict == "pays"
