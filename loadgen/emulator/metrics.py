"""/metrics of an emulated engine: vLLM's names and labels for the profile's version, and a few names of its own.

Names and the versions that have them: vllm/v1/metrics/loggers.py from 0.8.0 to 0.33.0.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from loadgen.emulator.account import Account, Histogram
from loadgen.emulator.arm import Emulated

Version = tuple[int, ...]
ALWAYS: Version = ()
NEVER: Version = (1_000_000,)


def numbers(version: str) -> Version:
    """ "0.32.0" -> (0, 32, 0)."""
    return tuple(int(part) for part in version.split("+")[0].split(".") if part.isdigit())


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of the versions [since, until)."""

    name: str
    kind: Literal["gauge", "counter"]
    value: Callable[[Account], float]
    what: str
    since: Version = ALWAYS
    until: Version = NEVER
    label: tuple[str, str] | None = None


ROWS: tuple[Row, ...] = (
    Row("num_requests_running", "gauge", lambda a: a.running, "Requests in the running batch."),
    Row("num_requests_waiting", "gauge", lambda a: a.waiting, "Requests in the waiting queue."),
    Row(
        *("num_requests_waiting_by_reason", "gauge", lambda a: a.waiting, "Requests that wait, by reason."),
        since=(0, 20),
        label=("reason", "capacity"),
    ),
    Row(
        *("num_requests_waiting_by_reason", "gauge", lambda a: 0.0, "Requests that wait, by reason."),
        since=(0, 20),
        label=("reason", "deferred"),
    ),
    Row("kv_cache_usage_perc", "gauge", lambda a: a.usage_ratio, "Share of the KV cache in use.", since=(0, 9, 2)),
    Row("gpu_cache_usage_perc", "gauge", lambda a: a.usage_ratio, "Share of the KV cache in use.", until=(0, 11)),
    Row("num_preemptions", "counter", lambda a: a.preemptions, "Preemptions."),
    Row("prompt_tokens", "counter", lambda a: a.prompt_tokens, "Prefill tokens processed."),
    Row("prompt_tokens_cached", "counter", lambda a: a.cached_tokens, "Prompt tokens found cached.", since=(0, 16)),
    Row("generation_tokens", "counter", lambda a: a.generation_tokens, "Generation tokens processed."),
    Row("prefix_cache_queries", "counter", lambda a: a.prefix_queries, "Tokens looked up.", since=(0, 9, 2)),
    Row("prefix_cache_hits", "counter", lambda a: a.prefix_hits, "Tokens found cached.", since=(0, 9, 2)),
    Row("gpu_prefix_cache_queries", "counter", lambda a: a.prefix_queries, "Tokens looked up.", until=(0, 11)),
    Row("gpu_prefix_cache_hits", "counter", lambda a: a.prefix_hits, "Tokens found cached.", until=(0, 11)),
)

# name, key of Account.histograms, what, since, until
HISTOGRAMS: tuple[tuple[str, str, str, Version, Version], ...] = (
    ("iteration_tokens_total", "step_tokens", "Tokens per engine step.", ALWAYS, NEVER),
    ("time_to_first_token_seconds", "ttft", "Time to first token.", ALWAYS, NEVER),
    ("time_per_output_token_seconds", "itl", "Time between tokens.", ALWAYS, (0, 12)),
    ("inter_token_latency_seconds", "itl", "Time between tokens.", (0, 10, 2), NEVER),
    ("request_time_per_output_token_seconds", "tpot", "Mean time per token of a request.", (0, 11), NEVER),
    ("e2e_request_latency_seconds", "e2e", "From arrival to the last token.", ALWAYS, NEVER),
    ("request_queue_time_seconds", "queue", "Time spent waiting.", ALWAYS, NEVER),
    ("request_inference_time_seconds", "inference", "Time from admission to the last token.", ALWAYS, NEVER),
    ("request_prefill_time_seconds", "prefill", "Time from admission to the first token.", ALWAYS, NEVER),
    ("request_decode_time_seconds", "decode", "Time from the first to the last token.", ALWAYS, NEVER),
    ("request_prompt_tokens", "request_prompt", "Prompt tokens of a request.", ALWAYS, NEVER),
    ("request_generation_tokens", "request_generation", "Generated tokens of a request.", ALWAYS, NEVER),
    ("request_num_preemptions", "preempted", "Preemptions of a request.", (0, 30), NEVER),
)


class Exposition:
    """Renders an account as Prometheus text, in a registry of its own."""

    def __init__(self, arm: Emulated, account: Account) -> None:
        self._account = account
        self._version = numbers(arm.profile.version)
        self._labels = {"model_name": arm.served_name}
        if self._version >= (0, 8, 5):
            self._labels = {"engine": "0", **self._labels}
        self._config = cache_config(arm, self._version)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """The body of /metrics."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks a collector for."""
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for row in ROWS:
            if row.since <= self._version < row.until:
                further = {row.label[0]: row.label[1]} if row.label else {}
                labels = {**self._labels, **further}
                family = families.setdefault(row.name, _family(row, tuple(labels)))
                family.add_metric(tuple(labels.values()), row.value(self._account))
        yield from families.values()
        success = CounterMetricFamily(
            "vllm:request_success", "Requests that ended, by reason.", labels=(*self._labels, "finished_reason")
        )
        for reason, count in self._account.finished.items():
            success.add_metric((*self._labels.values(), reason), count)
        yield success
        for name, key, what, since, until in HISTOGRAMS:
            if since <= self._version < until:
                yield _histogram(name, what, self._labels, self._account.histograms[key])
        config = GaugeMetricFamily("vllm:cache_config_info", "The cache's configuration.", labels=tuple(self._config))
        config.add_metric(tuple(self._config.values()), 1.0)
        yield config
        yield from self._own()

    def _own(self) -> Iterator[Metric]:
        account = self._account
        yield CounterMetricFamily("loadgen_emulator_steps", "Engine steps.", account.steps)
        yield CounterMetricFamily(
            "loadgen_emulator_late_steps",
            "Steps that ended over 5 ms after their time.",
            account.late_steps,
        )
        yield CounterMetricFamily("loadgen_emulator_late_seconds", "How late they came in all.", account.late_s)


def cache_config(arm: Emulated, version: Version) -> Mapping[str, str]:
    """The labels of vllm:cache_config_info (vllm/config/cache.py) that tell something about an emulated cache."""
    limits, flags = arm.limits, arm.flags
    told = arm.profile.device == "cpu" or "kv-cache-memory-bytes" in flags
    concurrency = arm.capacity_tokens / arm.max_model_len
    labels: dict[str, tuple[object, Version]] = {
        "block_size": (limits.block_tokens, ALWAYS),
        "cache_dtype": (flags.get("kv-cache-dtype", "auto"), ALWAYS),
        "enable_prefix_caching": (limits.prefix_caching, ALWAYS),
        "engine": (0, (0, 8, 5)),
        "gpu_memory_utilization": (flags.get("gpu-memory-utilization", arm.profile.memory.utilization), ALWAYS),
        "kv_cache_dtype_skip_layers": (_skipped(arm), (0, 19)),
        "kv_cache_max_concurrency": (concurrency, (0, 24)),
        "kv_cache_memory_bytes": (int(arm.kv_cache_bytes) if told else None, (0, 10, 2)),
        "kv_cache_size_tokens": (arm.capacity_tokens, (0, 24)),
        "num_cpu_blocks": (None, ALWAYS),
        "num_gpu_blocks": (limits.blocks, ALWAYS),
        "num_gpu_blocks_override": (None, ALWAYS),
        "sliding_window": (None, ALWAYS),
    }
    return {name: str(value) for name, (value, since) in labels.items() if version >= since}


def _skipped(arm: Emulated) -> list[str]:
    """The layers that stay in 16 bits, as the names vLLM prints: the first and the last ones, in turn."""
    layers, skipped = arm.profile.model.layers, arm.format.skip_layers
    first = -(-skipped // 2)
    return [str(layer) for layer in (*range(first), *range(layers - (skipped - first), layers))]


def _family(row: Row, labels: tuple[str, ...]) -> GaugeMetricFamily | CounterMetricFamily:
    kind = GaugeMetricFamily if row.kind == "gauge" else CounterMetricFamily
    return kind(f"vllm:{row.name}", row.what, labels=labels)


def _histogram(name: str, what: str, labels: Mapping[str, str], seen: Histogram) -> HistogramMetricFamily:
    family = HistogramMetricFamily(f"vllm:{name}", what, labels=tuple(labels))
    below, buckets = 0, []
    for bound, count in zip((*map(float, seen.bounds), float("inf")), seen.counts, strict=True):
        below += count
        buckets.append(("+Inf" if bound == float("inf") else str(bound), float(below)))
    family.add_metric(tuple(labels.values()), buckets, seen.sum)
    return family
