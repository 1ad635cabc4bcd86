import numpy as np
import pytest
from fakes import synthetic

from loadgen.analysis import scrapes as readings, windows
from loadgen.quantities import QUANTITIES, StageView, quantile
from loadgen.records import EngineScrape, Health, Sample, Scrape, Slo, StageSpec


def sample(index, sent, events, *, prompt=10, tokens=None, **rest):
    return Sample(
        index=index,
        stage="s",
        sent_s=sent,
        events_s=tuple(events),
        end_s=events[-1] + 0.001 if events else sent,
        planned_prompt_tokens=prompt,
        planned_output_tokens=len(events),
        output_tokens=tokens,
        **rest,
    )


def scrape(at, **values):
    return Scrape(at_s=at, took_s=0.001, engines=(EngineScrape(engine="0", values=values),))


def test_steady_window_runs_from_full_to_the_last_sent():
    spec = StageSpec(name="s", role="saturated", concurrency=2)
    # two lanes, each request nine tenths of a second, one sent each half second
    longer = [sample(k, 0.5 * k, [0.5 * k + 0.9]) for k in range(8)]
    assert windows.steady_window(spec, longer) == (0.5, 3.5)
    assert windows.steady_window(spec, longer[:6]) == (0.5, 2.5)  # 4 = 2 x 2 ended within
    assert windows.steady_window(spec, longer[:5]) is None
    assert windows.steady_window(StageSpec(name="s", role="one_stream", concurrency=1), longer) is None
    assert windows.steady_window(StageSpec(name="s", role="open_loop", rate_per_s=1), longer) is None
    assert windows.steady_window(spec, []) is None
    assert windows.steady_window(StageSpec(name="s", role="saturated", concurrency=9), longer) is None


def test_latencies_by_hand():
    found = windows.latencies([sample(0, 1.0, [1.5, 1.6, 1.8], tokens=3), sample(1, 2.0, [2.2], tokens=1, due_s=1.9)])
    assert found["ttft"].tolist() == pytest.approx([0.2, 0.5])
    assert found["ttft_from_due"].tolist() == pytest.approx([0.3])
    assert found["itl"].tolist() == pytest.approx([0.1, 0.2])
    assert found["tpot"].tolist() == pytest.approx([0.15])
    assert found["e2e"].tolist() == pytest.approx([0.201, 0.801])


def test_an_event_stands_for_the_tokens_that_the_server_counted():
    assert windows.tokens_per_event(sample(0, 0, [1, 2], tokens=6)) == 3
    assert windows.tokens_per_event(sample(0, 0, [1, 2])) == 1
    assert windows.several_per_event([sample(0, 0, [1, 2], tokens=6)])
    assert not windows.several_per_event([sample(0, 0, [1, 2], tokens=2), sample(1, 0, [1, 2])])


def test_contexts_of_decoded_tokens():
    assert windows.contexts([sample(0, 0, [1, 2, 3], prompt=10, tokens=3)]).tolist() == [11, 12]
    assert windows.contexts([]).tolist() == []


def test_slo_counts_from_due():
    late = sample(0, 5.0, [5.1, 5.2], tokens=2, due_s=4.0)
    assert windows.meets(late, Slo(tpot_s=0.2))
    assert not windows.meets(late, Slo(ttft_s=0.5))
    assert not windows.meets(late, Slo(e2e_s=0.1))


def test_counters_survive_a_restart_and_a_late_start():
    seen = [scrape(0, c=100.0), scrape(1, c=130.0), scrape(2, c=10.0, d=5.0), scrape(3, c=15.0, d=6.0)]
    assert readings.counter(seen, "c").values.tolist() == [0, 30, 40, 45]
    assert readings.counter(seen, "d").values.tolist() == [5, 6]
    assert readings.growth(seen, 0.5, 2.5) == {"c": 45.0, "d": 6.0}
    assert readings.growth(seen[:1], 0, 1) == {}


def test_ranks_add_up_but_usage_does_not():
    two = Scrape(
        at_s=1,
        took_s=0,
        engines=(
            EngineScrape(engine="0", values={"running": 3, "kv_usage_ratio": 0.2}),
            EngineScrape(engine="1", values={"running": 4, "kv_usage_ratio": 0.6}),
        ),
    )
    assert readings.gauge([two], "running").values.tolist() == [7]
    usage = readings.gauge([two], "kv_usage_ratio")
    assert usage.values.tolist() == pytest.approx([0.4])
    assert usage.high.tolist() == [0.6]
    assert readings.good([Scrape(at_s=0, took_s=0, failure="refused"), two]) == (two,)


def test_stage_of_a_block_by_hand():
    run = synthetic.demo(repeats=1)
    block = synthetic.replace_record(
        run.blocks[0],
        samples=(
            sample(1, 1.0, [1.5, 2.0, 2.5], tokens=6, prompt=100),
            sample(0, 0.0, [0.5, 1.0], tokens=2, prompt=50),
            synthetic.failing(sample(2, 2.0, [2.1])),
        ),
        scrapes=(
            scrape(-0.1, kv_usage_ratio=0.0, preemptions=2.0),
            scrape(1.0, kv_usage_ratio=0.5, preemptions=3.0),
            scrape(9.0, kv_usage_ratio=0.9, preemptions=4.0),
        ),
        health=(),
    )
    found = windows.stage_data(block, StageSpec(name="s", role="one_stream", concurrency=1), Slo(), steady=False)
    assert found is not None
    view = found.view
    assert (view.ok, view.stage_s, view.window_s) == (2, pytest.approx(2.501), pytest.approx(2.501))
    assert QUANTITIES["output_tokens_per_s"].extract(view) == pytest.approx(8 / 2.501)
    assert QUANTITIES["total_tokens_per_s"].extract(view) == pytest.approx(158 / 2.501)
    assert QUANTITIES["requests_per_s"].extract(view) == pytest.approx(2 / 2.501)
    assert QUANTITIES["kv_usage_peak_ratio"].extract(view) == 0.5
    assert QUANTITIES["preemptions"].extract(view) == 2
    assert QUANTITIES["goodput_per_s"].extract(view) is None
    assert QUANTITIES["client_cpu_ratio"].extract(view) is None


def test_warm_up_is_not_measured():
    run = synthetic.demo(repeats=1)
    warm = tuple(synthetic.replace_record(s, warmup=s.index < 3) for s in run.blocks[0].samples)
    block = synthetic.replace_record(run.blocks[0], samples=warm)
    assert [s.index for s in windows.stage_samples(block, "one-stream")] == [3, 4, 5, 6, 7]


def test_part_durations_add_up_to_the_window():
    run = synthetic.demo(repeats=1)
    spec = run.blocks[0].manifest.stages[1]
    found = windows.stage_data(run.blocks[0], spec, Slo(), steady=True)
    assert found is not None
    assert found.steady
    assert sum(found.part_durations_s) == pytest.approx(found.view.window_s)
    assert len(found.part_durations_s) == windows.PARTS


def test_every_quantity_reads_an_empty_view_as_unknown_or_zero():
    for quantity in QUANTITIES.values():
        assert quantity.extract(StageView()) in (None, 0.0), quantity.name


def test_quantile_is_numpys():
    values = np.sort(np.random.default_rng(0).random(37))
    for share in (0, 0.1, 0.5, 0.99, 1):
        assert quantile(values, share) == pytest.approx(np.quantile(values, share))
    assert quantile(np.empty(0), 0.5) is None


def test_a_watch_interval_that_reaches_out_of_the_stage_is_not_the_stages():
    def watched(at_s: float, lag_s: float) -> Health:
        return Health(at_s=at_s, interval_s=0.25, loop_lag_max_s=lag_s, cpu_s=0.0, rss_bytes=0, in_flight=1)

    before, inside, across = watched(10.1, 0.5), watched(10.3, 0.001), watched(12.1, 0.9)
    assert windows.watched((before, inside, across), 10.0, 12.0) == (inside,)
    assert windows.watched((before,), 10.0, 10.05) == (before,), "a stage too short to hold an interval"


def test_metrics_that_could_not_be_read_are_said():
    fine, failed = scrape(1.0, running=1.0), Scrape(at_s=2.0, took_s=0.1, failure="HTTP 404; not asked again")
    assert readings.doubts("fp8", [fine] * 30 + [failed]) == ()
    assert readings.doubts("fp8", [fine, failed]) == (
        "fp8: 1 of 2 readings of the server's metrics failed; the last failure: HTTP 404; not asked again",
    )
    (none,) = readings.doubts("fp8", [failed])
    assert "no reading of the server's metrics; the last failure: HTTP 404" in none
    assert "no reading of the server's metrics:" in readings.doubts("fp8", [])[0]
