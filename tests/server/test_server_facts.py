import asyncio

import httpx
import pytest

from loadgen.engines import openai, vllm
from loadgen.errors import ServerError
from loadgen.records import BackendSeen
from loadgen.server.facts import flag_value, read_facts

# Real labels of vLLM 0.32, the ones that say nothing here left out.
CACHE = (
    'vllm:cache_config_info{{block_size="128",cache_dtype="{dtype}",enable_prefix_caching="False",engine="0",'
    'gpu_memory_utilization="0.92",kv_cache_dtype_skip_layers="{skip}",kv_cache_max_concurrency="2.0",'
    'kv_cache_memory_bytes="{memory}",kv_cache_size_tokens="{tokens}",num_gpu_blocks="32"}} 1.0\n'
)
REAL_LOG = """\
(APIServer pid=7461) INFO 11-30 14:45:05 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0
(APIServer pid=7461) INFO 11-30 14:45:05 [api_utils.py:286] non-default args: {{'host': '127.0.0.1', 'port': 8400, \
'model': '.cache/tiny', 'max_model_len': 2048, 'enforce_eager': True, 'served_model_name': ['tiny'], \
'kv_cache_memory_bytes': 134217728, 'kv_cache_dtype': '{dtype}', 'enable_prefix_caching': False, 'max_num_seqs': 64}}
(EngineCore pid=7523) INFO 11-30 14:45:20 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: \
model='.cache/tiny', dtype=torch.bfloat16, max_seq_len=2048, kv_cache_dtype={dtype}, device_config=cpu, \
served_model_name=tiny, enable_prefix_caching=False, enable_chunked_prefill=True
(Worker pid=7533) INFO 11-30 14:45:29 [cpu_worker.py:260] Explicitly set (0.12/8.84) GiB for KV cache on node 0.
(EngineCore pid=7523) INFO 11-30 14:45:29 [kv_cache_utils.py:2327] CPU KV cache size: {tokens} tokens, Maximum \
concurrency for 2,048 tokens per request: 2.00x
"""


def facts(*, cache=None, log=None, engine=vllm.ENGINE, argv=(), version="0.32.0", model="tiny"):
    def handler(request):
        answers = {
            "/v1/models": httpx.Response(200, json={"data": [{"id": model, "max_model_len": 2048}]}),
            "/version": httpx.Response(200, json={"version": version}),
            "/metrics": httpx.Response(404) if cache is None else httpx.Response(200, text=cache),
        }
        return answers[request.url.path]

    url = "http://x/v1" if cache is not None or log is None else None
    return asyncio.run(
        read_facts(url=url, log_text=log, engine=engine, argv=argv, transport=httpx.MockTransport(handler))
    )


def cache_line(dtype="bfloat16", tokens="4096", memory="134217728", skip="[]"):
    return CACHE.format(dtype=dtype, tokens=tokens, memory=memory, skip=skip)


@pytest.mark.parametrize("odd", [12, None, ["0.9"], "9" * 6000, "²"])
def test_what_is_no_version_model_or_number_is_not_known(odd):
    cache = cache_line(tokens=odd if isinstance(odd, str) else "x", memory="²")
    seen = facts(cache=cache, version=odd, model=odd)
    assert (seen.capacity_tokens, seen.kv_memory_bytes) == (32 * 128, None)
    assert seen.version == seen.model == (odd if isinstance(odd, str) else None)


def test_a_real_log_alone():
    seen = facts(log=REAL_LOG.format(dtype="fp8", tokens="8,192"))
    assert (seen.version, seen.model, seen.max_model_len, seen.device) == ("0.32.0", "tiny", 2048, "cpu")
    assert (seen.kv_dtype_asked, seen.kv_dtype, seen.kv_dtype_how) == ("fp8", "fp8", "log")
    assert (seen.capacity_tokens, seen.capacity_how) == (8192, "log")
    assert (seen.max_num_seqs, seen.prefix_caching) == (64, False)
    assert seen.backends == (BackendSeen(name="CPU_ATTN", how="assumed"),)
    assert seen.bytes_per_token is None, "0.12 GiB is too coarse to divide"
    assert seen.warnings == ()


def test_the_endpoints_alone():
    seen = facts(cache=cache_line())
    assert (seen.version, seen.model, seen.max_model_len) == ("0.32.0", "tiny", 2048)
    assert (seen.kv_dtype, seen.kv_dtype_how) == ("bfloat16", "endpoint")
    assert (seen.capacity_tokens, seen.capacity_how, seen.block_tokens) == (4096, "endpoint", 128)
    assert (seen.kv_memory_bytes, seen.bytes_per_token) == (134217728, 32768.0)
    assert seen.prefix_caching is False
    assert seen.kv_dtype_asked is None
    assert seen.max_num_seqs is None
    assert seen.backends == (), "no endpoint of vLLM tells the backend"


def test_both_together_agree_and_complete_each_other():
    seen = facts(cache=cache_line(), log=REAL_LOG.format(dtype="bfloat16", tokens="4,096"))
    assert (seen.kv_dtype, seen.kv_dtype_how, seen.kv_dtype_asked) == ("bfloat16", "endpoint", "bfloat16")
    assert seen.backends[0].name == "CPU_ATTN"
    assert seen.max_num_seqs == 64


def test_before_0_24_the_capacity_is_blocks_times_their_size():
    seen = facts(cache=cache_line(tokens="None"), version="0.20.0")
    assert (seen.capacity_tokens, seen.capacity_how) == (32 * 128, "endpoint")


def test_argv_tells_what_was_asked():
    seen = facts(cache=cache_line(dtype="auto"), argv=("python", "--kv-cache-dtype=fp8", "--max-num-seqs", "4"))
    assert (seen.kv_dtype_asked, seen.kv_dtype, seen.max_num_seqs) == ("fp8", "auto", 4)
    assert "ask for bfloat16" in seen.warnings[0]


def test_nothing_asked_is_auto():
    assert facts(cache=cache_line(dtype="auto"), argv=("python", "-m", "x")).kv_dtype_asked == "auto"


def test_a_worker_that_stores_another_type_wins():
    log = "INFO 11-30 14:45:29 [x.py:1] Using fp8_ds_mla KV cache format for FLASHMLA_SPARSE backend.\n"
    seen = facts(cache=cache_line(dtype="auto"), log=log)
    assert (seen.kv_dtype, seen.kv_dtype_how) == ("fp8_ds_mla", "log")


def test_layers_that_stay_unquantized_are_told():
    seen = facts(cache=cache_line(dtype="fp8", skip="['sliding_window']"))
    assert seen.warnings == ("layers that keep an unquantized cache: ['sliding_window']",)


@pytest.mark.parametrize("dtype", ["int8_per_token_head", "fp8_per_token_head", "nvfp4", "int4_per_token_head"])
def test_a_cpu_that_accepts_what_it_cannot_do(dtype):
    log = REAL_LOG.format(dtype=dtype, tokens="8,192")
    (warning,) = facts(cache=cache_line(dtype=dtype), log=log).warnings
    assert "no kernel" in warning
    assert dtype in warning
    assert facts(log=log.replace("0.32.0", "0.33.0")).warnings == ()
    assert facts(log=log.replace("device_config=cpu", "device_config=cuda").replace("CPU KV", "GPU KV")).warnings == ()


def test_the_engine_that_ignored_the_flag():
    log = "INFO 03-01 00:00:00 core.py:50] Initializing a V1 LLM engine (v0.7.3) with config: kv_cache_dtype=fp8, a=1\n"
    (warning,) = facts(log=log).warnings
    assert "ignores --kv-cache-dtype fp8" in warning
    assert facts(log=log.replace("a V1 LLM", "an LLM")).warnings == ()
    assert facts(log=log.replace("0.7.3", "0.8.0")).warnings == ()


def test_flash_attention_said_nothing_before_0_6_6():
    log = (
        "INFO 09-01 00:00:00 llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: kv_cache_dtype=auto, "
        "device_config=cuda, x=1\nINFO 09-01 00:00:09 gpu_executor.py:122] # GPU blocks: 100, # CPU blocks: 10\n"
    )
    seen = facts(log=log)
    assert seen.backends == (BackendSeen(name="FLASH_ATTN", how="assumed"),)
    assert (seen.capacity_tokens, seen.capacity_how) == (1600, "assumed")
    assert facts(log=log.replace("0.6.3", "0.6.6")).backends == ()


def test_a_rocm_backend_names_the_device():
    log = "Using ROCM_ATTN backend out of potential backends: ['ROCM_ATTN'].\nGPU KV cache size: 10 tokens\n"
    assert facts(log=log).device == "rocm"


def test_a_log_with_enough_digits_gives_bytes_per_token():
    log = "Available KV cache memory: 16.00 GiB\nGPU KV cache size: 131,072 tokens\n"
    assert facts(log=log).bytes_per_token == 131_072


def test_an_unknown_engine_gives_its_model_only():
    seen = facts(cache=cache_line(), engine=openai.ENGINE)
    assert (seen.engine, seen.model, seen.max_model_len) == ("openai", "tiny", 2048)
    assert (seen.version, seen.kv_dtype, seen.kv_dtype_how, seen.capacity_how) == (None, None, "unknown", "unknown")


def test_a_dead_url_is_one_clear_line():
    def handler(request):
        raise httpx.ConnectError("Connection refused")

    with pytest.raises(ServerError, match=r"http://x: nothing answers there \(Connection refused\)"):
        asyncio.run(
            read_facts(url="http://x", log_text=None, engine=vllm.ENGINE, transport=httpx.MockTransport(handler))
        )


def test_answers_of_another_kind_are_not_facts():
    def handler(request):
        return httpx.Response(200, html="<html>login</html>")

    seen = asyncio.run(
        read_facts(url="http://x", log_text=None, engine=vllm.ENGINE, transport=httpx.MockTransport(handler))
    )
    assert (seen.version, seen.model, seen.capacity_tokens) == (None, None, None)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--max-num-seqs", "4"], "4"),
        (["--max_num_seqs=4"], "4"),
        (["--max-num-seqs", "4", "--max-num-seqs", "8"], "8"),
        (["--max-num-seqs"], None),
        (["--max-num"], None),
    ],
)
def test_flag_value(argv, expected):
    assert flag_value(argv, "max-num-seqs") == expected
