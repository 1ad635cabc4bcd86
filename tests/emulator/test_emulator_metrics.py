import asyncio

import pytest
from emulator_front_cases import STEP_S, arm, profile, serving
from prometheus_client.parser import text_string_to_metric_families

from loadgen.emulator.account import ITL_S, REQUEST_S, TTFT_S, Account, Histogram, token_bounds
from loadgen.emulator.arm import emulated
from loadgen.emulator.metrics import Exposition, numbers
from loadgen.engines.emulator import ENGINE
from loadgen.engines.vllm import METRICS
from loadgen.server.exposition import canonical, labels_of


def text_of(version, **flags):
    told = emulated(profile(version=version), {name.replace("_", "-"): value for name, value in flags.items()})
    return Exposition(told, Account(max_model_len=told.max_model_len)).text().decode()


def test_the_counts_of_a_known_load():
    async def main(served):
        await asyncio.gather(
            *(served.completion(max_tokens=5, prompt=list(range(100, 100 + many))) for many in (40, 1)),
        )
        [scrape] = canonical((await served.http.get("/metrics")).text, ENGINE)
        return scrape

    values = serving(main).values
    assert set(values) == set(METRICS), "every quantity that loadgen reads is there"
    counts = {name: value for name, value in values.items() if not name.endswith("_s")}
    assert counts == {
        **{"running": 0, "waiting": 0, "kv_usage_ratio": 0, "preemptions": 0, "prefix_queries": 0, "prefix_hits": 0},
        **{"prompt_tokens": 41, "generation_tokens": 10, "requests_finished": 2},
        **{"iteration_tokens_sum": 49, "iteration_tokens_count": 5, "ttft_count": 2, "itl_count": 8},
        **{"queue_count": 2, "prefill_count": 2, "decode_count": 2},
    }
    sums = {name: value for name, value in values.items() if name.endswith("_s")}
    assert sums == pytest.approx(
        {"ttft_sum_s": 2 * STEP_S, "itl_sum_s": 8 * STEP_S, "queue_sum_s": 0}
        | {"prefill_sum_s": 2 * STEP_S, "decode_sum_s": 8 * STEP_S},
        abs=1e-9,
    )


def test_gauges_while_requests_wait():
    async def main(served):
        asked = [asyncio.create_task(served.completion(max_tokens=40, ignore_eos=True)) for _ in range(11)]
        await asyncio.sleep(20.5 * STEP_S)
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total")
        seen = [await served.metric(f"vllm:{name}") for name in names]
        reasons = await served.metric("vllm:num_requests_waiting_by_reason")
        await asyncio.gather(*asked)
        return seen, reasons

    seen, reasons = serving(main)
    assert seen == [8, 3, pytest.approx(16 / 63), 0]
    assert reasons == 3


def test_a_small_cache_preempts_and_the_counter_says_so():
    async def main(served):
        asked = [served.completion(max_tokens=240, ignore_eos=True) for _ in range(8)]
        await asyncio.gather(*asked)
        return await served.metric("vllm:num_preemptions_total")

    assert serving(main) > 0


# version -> (names that are there, names that are not)
USAGE, OLD_USAGE = "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"
ITL, OLD_ITL = "vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"
HITS, OLD_HITS = "vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"
NAMES = [
    ("0.8.0", {OLD_USAGE, OLD_ITL, OLD_HITS}, {USAGE, ITL, HITS}),
    ("0.9.2", {OLD_USAGE, USAGE, OLD_ITL, OLD_HITS, HITS}, {ITL}),
    ("0.10.2", {OLD_USAGE, USAGE, OLD_ITL, ITL}, set()),
    ("0.11.0", {USAGE, OLD_ITL, ITL, HITS}, {OLD_USAGE, OLD_HITS}),
    ("0.12.0", {USAGE, ITL, HITS}, {OLD_USAGE, OLD_ITL, OLD_HITS}),
    ("0.33.0", {USAGE, ITL, HITS, "vllm:request_num_preemptions_sum"}, {OLD_USAGE, OLD_ITL, OLD_HITS}),
]


@pytest.mark.parametrize(("version", "there", "absent"), NAMES)
def test_the_names_of_each_version_and_loadgen_reads_them_all(version, there, absent):
    text = text_of(version)
    names = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    assert there <= names
    assert not absent & names
    [scrape] = canonical(text, ENGINE)
    assert set(scrape.values) == set(METRICS)


@pytest.mark.parametrize(("version", "engine"), [("0.8.4", False), ("0.8.5", True), ("0.32.0", True)])
def test_ranks_are_labelled_since_0_8_5(version, engine):
    assert ('vllm:num_requests_running{engine="0",model_name="toy"} 0.0' in text_of(version)) is engine


def test_the_configuration_of_the_cache():
    labels = labels_of(text_of("0.32.0", kv_cache_dtype="fp8", enable_prefix_caching="true"), ENGINE.config_metric)
    assert labels["cache_dtype"] == "fp8"
    assert labels["block_size"] == "16"
    assert labels["num_gpu_blocks"] == "128"
    assert labels["kv_cache_size_tokens"] == "2048"
    assert labels["enable_prefix_caching"] == "True"
    assert labels["kv_cache_memory_bytes"] == "None", "a GPU's is told by the log unless it was set"
    assert labels["kv_cache_dtype_skip_layers"] == "[]"
    old = labels_of(text_of("0.23.0"), ENGINE.config_metric)
    assert "kv_cache_size_tokens" not in old
    assert old["cache_dtype"] == "auto"
    asked = labels_of(text_of("0.32.0", kv_cache_memory_bytes="1048576"), ENGINE.config_metric)
    assert asked["kv_cache_memory_bytes"] == "1048576"


def test_layers_left_in_16_bits_are_named():
    formats = {"fp8": {"backend": "FLASH_ATTN", "skip_layers": 2}}
    told = emulated(profile(formats=formats), {"kv-cache-dtype": "fp8"})
    text = Exposition(told, Account(max_model_len=512)).text().decode()
    assert labels_of(text, ENGINE.config_metric)["kv_cache_dtype_skip_layers"] == "['0', '1']"


def test_histograms_cumulate():
    histogram = Histogram((1, 2, 5))
    for value in (0, 1, 1.5, 5, 6):
        histogram.add(value)
    assert histogram.counts == [2, 1, 1, 1]
    assert histogram.sum == 13.5
    account = Account(max_model_len=512)
    account.histograms["ttft"].add(0.004)
    text = Exposition(arm(), account).text().decode()
    assert 'time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="toy"} 0.0' in text
    assert 'time_to_first_token_seconds_bucket{engine="0",le="0.005",model_name="toy"} 1.0' in text
    assert 'time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="toy"} 1.0' in text


def test_the_bounds_are_vllms():
    assert token_bounds(512) == (1, 2, 5, 10, 20, 50, 100, 200, 500)
    assert (len(TTFT_S), len(ITL_S), len(REQUEST_S)) == (22, 19, 21)
    assert all(tuple(sorted(bounds)) == bounds for bounds in (TTFT_S, ITL_S, REQUEST_S))


def test_version_numbers():
    assert numbers("0.32.0+cpu") == (0, 32, 0)
    assert numbers("0.8.5.post1") == (0, 8, 5)
