"""What an engine's counters say of its traffic between the first instant and the last.

Names: vLLM 0.32 `v1/metrics/loggers.py` (and `gpu_prefix_cache` of earlier ones), SGLang 0.5
`srt/observability/metrics_collector.py`.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from loadgen.errors import UserError
from loadgen.traces.counters import QUERY, Readings, ranged, scraped
from loadgen.traces.histogram import Lengths, lengths
from loadgen.traces.options import number
from loadgen.traces.rows import Source

FEWEST_INTERVALS = 10  # from which burstiness is judged
EVEN = 1.5  # the longest interval over the shortest, of a range whose intervals are comparable


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What an engine calls the things that are read. Of `found` and `asked` the first that grew count, together."""

    engine: str
    inputs: str
    outputs: str
    uncached: str | None = None
    found: tuple[tuple[str, ...], ...]
    asked: tuple[tuple[str, ...], ...]
    latency: str
    in_flight: tuple[str, ...]

    @property
    def wanted(self) -> frozenset[str]:
        """Every name of a sample that is of use."""
        stems = (self.inputs, self.outputs, self.latency, *filter(None, (self.uncached,)))
        counters = {name for group in (*self.found, *self.asked) for name in group}
        ends = ("_bucket", "_sum", "_count", "_created")
        return frozenset(
            {f"{stem}{end}" for stem in stems for end in ends}
            | counters
            | {f"{name.removesuffix('_total')}_created" for name in counters}
            | set(self.in_flight)
        )


ENGINES = (
    Names(
        engine="vLLM",
        inputs="vllm:request_prompt_tokens",
        outputs="vllm:request_generation_tokens",
        found=(
            ("vllm:prefix_cache_hits_total", "vllm:external_prefix_cache_hits_total"),
            ("vllm:gpu_prefix_cache_hits_total",),
        ),
        asked=(("vllm:prefix_cache_queries_total",), ("vllm:gpu_prefix_cache_queries_total",)),
        latency="vllm:e2e_request_latency_seconds",
        in_flight=("vllm:num_requests_running", "vllm:num_requests_waiting"),
    ),
    Names(
        engine="SGLang",
        inputs="sglang:prompt_tokens_histogram",
        outputs="sglang:generation_tokens_histogram",
        uncached="sglang:uncached_prompt_tokens_histogram",
        found=(("sglang:cached_tokens_total",),),
        asked=(("sglang:prompt_tokens_total",),),
        latency="sglang:e2e_request_latency_seconds",
        in_flight=("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    ),
)
WANTED = frozenset().union(*(names.wanted for names in ENGINES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the counters say of the traffic. `intervals`: requests of each, where there are enough of even length."""

    names: Names
    span_s: float
    requests: float
    inputs: Lengths
    outputs: Lengths
    uncached: Lengths | None
    prefix_ratio: float | None
    latency_s: float | None
    in_flight: float | None
    intervals: tuple[float, ...]
    restarts: int

    @property
    def rate_per_s(self) -> float:
        """Requests that ended, over the span."""
        return self.requests / self.span_s


def measured(source: Source) -> Measured:
    """What `source` says. Raises UserError where it is no pair of scrapes or range, or nothing was served."""
    readings = _filtered(_readings(source), source.options.get("model"))
    for names in ENGINES:
        inputs, outputs = lengths(readings, names.inputs), lengths(readings, names.outputs)
        if inputs and outputs:
            return _measured(readings, names, inputs, outputs)
    raise UserError(
        f"{readings.source}: no request ended in between, or the histograms are not there; should hold "
        + " or ".join(f"{names.inputs} and {names.outputs} (_bucket, _sum, _count)" for names in ENGINES)
    )


def _readings(source: Source) -> Readings:
    with source.paths[0].open("rb") as file:
        is_json = file.read(64).lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{")
    if is_json:
        if "seconds" in source.options:
            raise UserError("--option seconds: a PromQL range has its own instants; leave it out")
        readings = ranged(source.paths, WANTED)
        if len(readings.instants) < 2:
            raise UserError(f"{readings.source}: fewer than two instants of an engine's series; ask for query={QUERY}")
        return readings
    if len(source.paths) < 2:
        raise UserError(
            f"{source.paths[0]}: one scrape: counters since the server's start; should be two, the earlier first, and "
            "--option seconds=... between them"
        )
    if "seconds" not in source.options:
        raise UserError("--option seconds: missing: a scrape does not say when it was made; should be given")
    return scraped(source.paths, number(source.options, "seconds"), WANTED)


def _filtered(readings: Readings, model: str | None) -> Readings:
    if model is None:
        return readings
    kept = {key: points for key, points in readings.series.items() if dict(key[1]).get("model_name") == model}
    if not kept:
        models = sorted({dict(labels).get("model_name", "") for _, labels in readings.series} - {""})
        raise UserError(f"--option model: {model}: no such model_name; should be one of {', '.join(models)}")
    return Readings(readings.source, kept, readings.instants, readings.scrapes)


def _measured(readings: Readings, names: Names, inputs: Lengths, outputs: Lengths) -> Measured:
    per_instant: defaultdict[float, float] = defaultdict(float)
    restarts = 0
    for growth in readings.growths(f"{names.inputs}_bucket"):
        if growth.labels.get("le") == "+Inf":
            restarts += growth.restarts
            for at_s, step in growth.steps:
                per_instant[at_s] += step
    gaps = [after - before for before, after in pairwise(readings.instants)]
    even = len(gaps) >= FEWEST_INTERVALS and max(gaps) <= EVEN * min(gaps)
    uncached = lengths(readings, names.uncached) if names.uncached else None
    latency_s = _total(readings, (f"{names.latency}_sum",))
    count = _total(readings, (f"{names.latency}_count",))
    gauges = [value for name in names.in_flight if (value := readings.gauge(name)) is not None]
    return Measured(
        names=names,
        span_s=readings.instants[-1] - readings.instants[0],
        requests=inputs.count,
        inputs=inputs,
        outputs=outputs,
        uncached=uncached,
        prefix_ratio=_prefix_ratio(readings, names, inputs, uncached),
        latency_s=latency_s / count if latency_s and count else None,
        in_flight=sum(gauges) if gauges else None,
        intervals=tuple(per_instant[at_s] for at_s in readings.instants[1:]) if even else (),
        restarts=restarts,
    )


def _total(readings: Readings, counters: tuple[str, ...]) -> float | None:
    """What `counters` grew by together. Where SGLang splits one by source, a `total` beside the parts is not added."""
    growths = [growth for name in counters for growth in readings.growths(name)]
    parts = [growth for growth in growths if growth.labels.get("cache_source") != "total"]
    if any(growth.total for growth in parts):
        growths = parts
    return math.fsum(growth.total for growth in growths) if growths else None


def _prefix_ratio(readings: Readings, names: Names, inputs: Lengths, uncached: Lengths | None) -> float | None:
    if uncached is not None and uncached.total is not None and inputs.total:
        return min(1.0, max(0.0, 1 - uncached.total / inputs.total))
    for found, asked in zip(names.found, names.asked, strict=True):
        hits, queries = _total(readings, found), _total(readings, asked)
        if hits is not None and queries:
            return min(1.0, hits / queries)
    return None
