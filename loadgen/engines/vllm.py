"""vLLM, from 0.5.5 to 0.33: how it is started, asked and read.

Sources: vLLM's own files, named beside each table; what a CPU build of 0.32.0 really prints was seen in runs.
"""

import re
from collections.abc import Mapping

from loadgen.engines.engine import Engine, KnownWrong, Silence
from loadgen.engines.vllm_log import LOG

ALL_VERSIONS: tuple[int, ...] = (1_000_000,)

# vllm/engine/metrics.py (V0), vllm/v1/metrics/loggers.py (V1). Both names of a renamed metric are exported for a few
# releases: the newer comes first.
METRICS: Mapping[str, tuple[str, ...]] = {
    "kv_usage_ratio": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "preemptions": ("vllm:num_preemptions_total",),
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "generation_tokens": ("vllm:generation_tokens_total",),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "requests_finished": ("vllm:request_success_total",),
    "iteration_tokens_sum": ("vllm:iteration_tokens_total_sum",),
    "iteration_tokens_count": ("vllm:iteration_tokens_total_count",),
    "ttft_sum_s": ("vllm:time_to_first_token_seconds_sum",),
    "ttft_count": ("vllm:time_to_first_token_seconds_count",),
    "itl_sum_s": ("vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"),
    "itl_count": ("vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count"),
    "queue_sum_s": ("vllm:request_queue_time_seconds_sum",),
    "queue_count": ("vllm:request_queue_time_seconds_count",),
    "prefill_sum_s": ("vllm:request_prefill_time_seconds_sum",),
    "prefill_count": ("vllm:request_prefill_time_seconds_count",),
    "decode_sum_s": ("vllm:request_decode_time_seconds_sum",),
    "decode_count": ("vllm:request_decode_time_seconds_count",),
}

NO_CPU_KERNEL = frozenset(
    {"int8_per_token_head", "fp8_per_token_head", "int4_per_token_head", "nvfp4", "nvfp4_4over6"}
    | {"turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"}
)

ENGINE = Engine(
    name="vllm",
    label="vLLM",
    module="vllm.entrypoints.openai.api_server",
    package="vllm",
    version_path="/version",
    metrics=METRICS,
    config_metric="vllm:cache_config_info",
    takes_token_ids=True,
    # A special token that a forced length runs into must show as text: an event without text cannot be timed.
    forces_length={"ignore_eos": True, "min_tokens": "output_tokens", "skip_special_tokens": False},
    takes_cache_salt=True,
    kv_dtype_flag="kv-cache-dtype",
    default_block_tokens=16,  # CUDA, vllm/config/cache.py; the CPU build has 128 and prints tokens, not blocks
    log=LOG,
    silences=(
        # vllm/platforms/cpu.py prints no line for a plain decoder since 0.11.2
        Silence(from_version=(0, 11, 2), to_version=ALL_VERSIONS, device="cpu", backend="CPU_ATTN"),
        # vllm/attention/selector.py printed a line for every backend but FlashAttention until 0.6.6
        Silence(from_version=(0, 5, 0), to_version=(0, 6, 6), device="cuda", backend="FLASH_ATTN"),
    ),
    known_wrong=(
        KnownWrong(
            # platforms/cpu.py of 0.32 does not ask the backend whether it knows the type; 0.33 refuses
            from_version=(0, 20),
            to_version=(0, 33),
            device="cpu",
            dtypes=NO_CPU_KERNEL,
            sentence="the CPU backend has no kernel for {dtype}: vLLM {version} accepts it and reports a larger cache, "
            "but what it computes is wrong; use fp8 (vLLM 0.33 refuses {dtype})",
        ),
        KnownWrong(
            # https://github.com/vllm-project/vllm/pull/14221
            from_version=(0, 7),
            to_version=(0, 8),
            device=None,
            dtypes=frozenset({"fp8", "fp8_e4m3", "fp8_e5m2"}),
            sentence="vLLM {version}'s V1 engine ignores --kv-cache-dtype {dtype}: the cache is not quantized; use 0.8 "
            "or later",
            when_log_has=re.compile(r"V1 LLM engine|on V1 engine"),
        ),
    ),
)
