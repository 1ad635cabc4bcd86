import asyncio

import httpx
import pytest
from server_virtual_time import run

from loadgen.clock import Clock
from loadgen.engines import openai, vllm
from loadgen.server.exposition import canonical, is_prometheus
from loadgen.server.scrape import Scraper

NEW = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_running{engine="1",model_name="tiny"} 5.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 99.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="tiny"} 0.75
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="tiny"} 12.0
vllm:num_preemptions_created{engine="0",model_name="tiny"} 1.796049929e+09
vllm:request_success_total{engine="0",finished_reason="stop",model_name="tiny"} 4.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 6.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01",model_name="tiny"} 10.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="tiny"} 2.5
vllm:inter_token_latency_seconds_count{engine="0",model_name="tiny"} 100.0
vllm:time_per_output_token_seconds_sum{engine="0",model_name="tiny"} 777.0
vllm:iteration_tokens_total_sum{engine="0",model_name="tiny"} 640.0
vllm:iteration_tokens_total_count{engine="0",model_name="tiny"} 10.0
process_cpu_seconds_total 12.0
"""
OLD = """\
vllm:num_requests_running{model_name="m"} 1.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:gpu_prefix_cache_queries_total{model_name="m"} 20.0
vllm:gpu_prefix_cache_hits_total{model_name="m"} 5.0
vllm:time_per_output_token_seconds_sum{model_name="m"} 3.0
vllm:time_per_output_token_seconds_count{model_name="m"} 30.0
"""


@pytest.mark.parametrize("odd", ["NaN", "+Inf", "-Inf"])
def test_a_value_that_is_no_number_is_not_there_and_the_rest_is(odd):
    (rank,) = canonical(OLD.replace('perc{model_name="m"} 0.5', f'perc{{model_name="m"}} {odd}'), vllm.ENGINE)
    assert "kv_usage_ratio" not in rank.values
    assert rank.values["running"] == 1.0


def test_whole_numbers_are_floats_and_those_beyond_floats_are_not_there():
    body = f"vllm:num_requests_running 1{'0' * 30}\nvllm:num_requests_waiting 1{'0' * 400}\n"
    (rank,) = canonical(body, vllm.ENGINE)
    assert rank.values == {"running": 1e30}
    assert isinstance(rank.values["running"], float)


def test_a_timestamp_beyond_floats_is_no_prometheus_text():
    with pytest.raises(ValueError, match="timestamp"):
        canonical(f"vllm:num_requests_running 1 1{'0' * 400}\n", vllm.ENGINE)


def test_values_that_add_up_to_no_number_are_not_there():
    (rank,) = canonical(
        OLD + 'vllm:prompt_tokens_total{a="b"} 1e308\nvllm:prompt_tokens_total{a="c"} 1e308\n', vllm.ENGINE
    )
    assert "prompt_tokens" not in rank.values
    assert rank.values["running"] == 1.0


def test_new_names_per_rank_with_reasons_added_up():
    first, second = canonical(NEW, vllm.ENGINE)
    assert (first.engine, second.engine) == ("0", "1")
    assert first.values == {
        "running": 3.0,
        "waiting": 7.0,
        "kv_usage_ratio": 0.25,
        "preemptions": 12.0,
        "requests_finished": 10.0,
        "itl_sum_s": 2.5,
        "itl_count": 100.0,
        "iteration_tokens_sum": 640.0,
        "iteration_tokens_count": 10.0,
    }
    assert second.values == {"running": 5.0, "kv_usage_ratio": 0.75}


def test_old_names_without_rank_are_rank_0():
    (only,) = canonical(OLD, vllm.ENGINE)
    assert only.engine == "0"
    assert only.values == {
        "running": 1.0,
        "kv_usage_ratio": 0.5,
        "prefix_queries": 20.0,
        "prefix_hits": 5.0,
        "itl_sum_s": 3.0,
        "itl_count": 30.0,
    }


def test_ranks_are_in_the_order_of_numbers():
    body = "".join(f'vllm:num_requests_running{{engine="{n}"}} {n}\n' for n in (10, 2, 0))
    assert [scrape.engine for scrape in canonical(body, vllm.ENGINE)] == ["0", "2", "10"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (NEW, True),
        ("up 1\n", True),
        ("x NaN\n", True),
        ("<html><body>hello 1</body></html>", False),
        ('{"a": 1}', False),
        ("", False),
    ],
)
def test_what_is_prometheus_text(body, expected):
    assert is_prometheus(body) is expected


def scraped(handler, *, seconds, engine=vllm.ENGINE, **options):
    """Scrapes and warnings of a scraper that ran so long in virtual time against `handler`."""

    async def main():
        found = []
        clock = Clock(source=asyncio.get_running_loop().time)
        transport = httpx.MockTransport(handler)
        scraper = Scraper("http://x/v1", engine=engine, clock=clock, sink=found.append, transport=transport, **options)
        task = asyncio.create_task(scraper.run())
        await asyncio.wait({task}, timeout=seconds)
        ended = task.done()
        if ended:
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return found, scraper.warnings, ended

    return run(main())


def test_readings_are_due_at_absolute_instants():
    async def slow(request):
        assert request.url == "http://x/metrics"
        await asyncio.sleep(0.1)
        return httpx.Response(200, text=NEW)

    found, warnings, ended = scraped(slow, seconds=1.12)
    assert [scrape.at_s for scrape in found] == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])
    assert [scrape.took_s for scrape in found] == pytest.approx([0.1] * 5)
    assert (warnings, ended) == ([], False)


def test_a_reading_slower_than_the_interval_makes_due_ones_fall_out():
    async def slow(request):
        await asyncio.sleep(0.6)
        return httpx.Response(200, text=NEW)

    found, _, _ = scraped(slow, seconds=2.2)
    assert [scrape.at_s for scrape in found] == pytest.approx([0.0, 0.75, 1.5])


def test_no_answer_is_a_failure_and_is_asked_again():
    calls = 0

    async def flaky(request):
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.sleep(60)
        if calls == 2:
            raise httpx.ConnectError("refused")
        return httpx.Response(503 if calls == 3 else 200, text=NEW)

    found, warnings, _ = scraped(flaky, seconds=2.6, timeout_s=1.9)
    assert [scrape.failure for scrape in found][:3] == ["no answer within 1.9 s", "ConnectError: refused", "HTTP 503"]
    assert found[0].took_s == pytest.approx(1.9)
    assert found[1].at_s == pytest.approx(2.0)
    assert found[3].failure is None
    assert found[3].engines[0].values["running"] == 3.0
    assert warnings == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(200, text="<html>hello</html>"), "not Prometheus text"),
        (httpx.Response(404, text="not here"), "HTTP 404"),
        (httpx.Response(200, text="up 1\n"), "none of vLLM's metrics"),
    ],
)
def test_a_useless_answer_is_refused_once(answer, said):
    calls = []

    def useless(request):
        calls.append(request)
        return answer

    found, warnings, ended = scraped(useless, seconds=5)
    assert len(calls) == 1
    assert [scrape.failure for scrape in found] == [f"{said}; not asked again"]
    assert ended
    assert len(warnings) == 1
    assert said in warnings[0]


def test_a_line_that_is_broken_is_a_failure_not_a_reading():
    found, warnings, _ = scraped(
        lambda request: httpx.Response(200, text='vllm:num_requests_running{engine="0} x\n'), seconds=0.3
    )
    assert "not Prometheus text" in found[0].failure
    assert warnings == []


@pytest.mark.parametrize(
    "headers", [{"location": "http:x"}, {"content-type": "text/plain; charset=base64"}, {"content-encoding": "gzip"}]
)
def test_an_answer_that_httpx_stumbles_over_is_one_reading(headers):
    found, _, _ = scraped(lambda request: httpx.Response(302, headers=headers, content=b""), seconds=0.1)
    assert len(found) == 1
    assert found[0].failure is not None
    assert "\n" not in found[0].failure


def test_an_engine_without_known_metrics_is_not_asked():
    found, warnings, ended = scraped(lambda request: httpx.Response(200, text=NEW), seconds=1, engine=openai.ENGINE)
    assert (found, ended, len(warnings)) == ([], True, 1)
