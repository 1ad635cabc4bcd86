"""One table of everything measured: name, label, unit, which way is better, what it means, how it is got and written.

Validation, printing, the Prometheus names and the documentation read this table; a new metric is one row.
Only this room turns seconds into ms, bytes into GiB and ratios into percent.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # the table is also read where nothing is computed: numpy would double the start-up time
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

Unit = Literal["s", "tokens_per_s", "requests_per_s", "ratio", "count", "tokens", "bytes", "s_per_token"]
Better = Literal["higher", "lower"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """One stage of one block, ready to be read off: what every extractor of the table gets.

    `latencies`: ttft, ttft_from_due, itl, tpot, e2e of the requests that ended well, seconds, each sorted upwards.
    `gauges`: kv_usage_ratio, running, waiting as scraped within the window; `peaks`: their highest over the stage.
    `counters`: growth of the server's counters over the stage. `lag_s`: how late requests were sent, sorted.
    """

    latencies: Mapping[str, "Values"] = field(default_factory=dict)
    window_s: float | None = None
    window_output_tokens: float = 0.0
    window_prompt_tokens: float = 0.0
    stage_s: float | None = None
    ok: int = 0
    good: int | None = None  # of `ok`, those that met the SLO; None without one
    gauges: Mapping[str, "Values"] = field(default_factory=dict)
    peaks: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    lag_s: "Values | None" = None
    loop_lag_max_s: float | None = None
    client_cpu_ratio: float | None = None


Extract = Callable[[StageView], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One row: `better` is None for what merely explains (a cache that is full is neither good nor bad)."""

    name: str
    label: str
    unit: Unit
    better: Better
    sentence: str
    group: Literal["latency", "throughput", "server", "client"]
    extract: Extract = field(repr=False, compare=False)

    def text(self, value: float | None) -> str:
        """The value for a person: "12.3 ms", "566 tok/s", "93 %", "unknown" for None."""
        return text(value, self.unit)


def text(value: float | None, unit: Unit) -> str:
    """Three significant digits in the unit a person expects."""
    if value is None:
        return "unknown"
    if unit == "s":
        return _seconds(value)
    if unit == "s_per_token":
        return f"{value * 1e6:.3g} µs/token"
    if unit == "ratio":
        return f"{value * 100:.3g} %"
    if unit == "bytes":
        return _bytes(value)
    suffix = {"tokens_per_s": " tok/s", "requests_per_s": " req/s", "tokens": " tokens", "count": ""}[unit]
    return _digits(value) + suffix


def _seconds(value: float) -> str:
    size = abs(value)
    if size >= 1:
        return f"{value:.2f} s" if size < 100 else f"{value:,.0f} s"
    if size >= 1e-3:
        return f"{value * 1e3:.3g} ms"
    return f"{value * 1e6:.3g} µs"


def _bytes(value: float) -> str:
    for size, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(value) >= size:
            return f"{_digits(value / size)} {name}"
    return f"{value:.0f} B"


def _digits(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def quantile(ordered: "Values | None", share: float) -> float | None:
    """The quantile of values sorted upwards, linear between neighbours (numpy's default); None of nothing."""
    if ordered is None or len(ordered) == 0:
        return None
    place = (len(ordered) - 1) * share
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (place - below))


def mean(values: "Values | None") -> float | None:
    """The arithmetic mean; None of nothing."""
    return None if values is None or len(values) == 0 else float(values.mean())


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _latency(name: str, statistic: str) -> Extract:
    if statistic == "mean":
        return lambda view: mean(view.latencies.get(name))
    share = int(statistic[1:]) / 100
    return lambda view: quantile(view.latencies.get(name), share)


def _gauge_mean(name: str) -> Extract:
    return lambda view: mean(view.gauges.get(name))


def _peak(name: str) -> Extract:
    return lambda view: view.peaks.get(name)


def _counted(part: str, whole: str) -> Extract:
    return lambda view: _share(view.counters.get(part), view.counters.get(whole))


def _latencies() -> Iterator[Quantity]:
    for name, label, meaning in (
        ("ttft", "TTFT", "from sending a request to its first event with content"),
        ("ttft_from_due", "TTFT from due", "from the instant a request was due to its first event with content"),
        ("itl", "ITL", "between consecutive events with content, over all gaps of all requests"),
        ("tpot", "TPOT", "(last event - first event) / (output tokens - 1) of each request"),
        ("e2e", "E2E", "from sending a request to the end of its response"),
    ):
        for statistic in ("mean", "p50", "p90", "p95", "p99"):
            yield Quantity(
                name=f"{name}_{statistic}_s",
                label=f"{label} {statistic}",
                unit="s",
                better="lower",
                sentence=f"{statistic} time {meaning}",
                group="latency",
                extract=_latency(name, statistic),
            )


def _throughput(name: str, label: str, unit: Unit, better: Better, sentence: str, extract: Extract) -> Quantity:
    return Quantity(
        name=name, label=label, unit=unit, better=better, sentence=sentence, group="throughput", extract=extract
    )


def _rates() -> Iterator[Quantity]:
    window = (
        "in the steady window: closed loop, from the wanted concurrency first reached to the last request sent, "
        "where that holds two full waves of completions, else the whole stage"
    )
    yield _throughput(
        "output_tokens_per_s",
        "output",
        "tokens_per_s",
        "higher",
        f"output tokens per second, each counted when it arrived, {window}",
        lambda view: _share(view.window_output_tokens, view.window_s),
    )
    yield _throughput(
        "total_tokens_per_s",
        "total",
        "tokens_per_s",
        "higher",
        f"prompt and output tokens per second, a prompt counted at its first output token, {window}",
        lambda view: _share(view.window_output_tokens + view.window_prompt_tokens, view.window_s),
    )
    yield _throughput(
        "requests_per_s",
        "requests",
        "requests_per_s",
        "higher",
        "requests completed per second of the whole stage, from the first sent to the last ended",
        lambda view: _share(view.ok, view.stage_s),
    )
    yield _throughput(
        "goodput_per_s",
        "goodput",
        "requests_per_s",
        "higher",
        "requests that met the SLO per second of the whole stage",
        lambda view: _share(view.good, view.stage_s),
    )
    yield _throughput(
        "makespan_s",
        "makespan",
        "s",
        "lower",
        "time for all of the stage's work, from the first request sent to the last ended, ramp and drain included",
        lambda view: view.stage_s,
    )


def _explaining(
    name: str, label: str, unit: Unit, sentence: str, group: Literal["server", "client"], extract: Extract
) -> Quantity:
    return Quantity(name=name, label=label, unit=unit, better=None, sentence=sentence, group=group, extract=extract)


def _servers() -> Iterator[Quantity]:
    for name, gauge, label, unit, meaning in (
        ("kv_usage", "kv_usage_ratio", "KV usage", "ratio", "share of KV blocks in use"),
        ("running", "running", "running", "count", "number of sequences in the batch"),
        ("waiting", "waiting", "waiting", "count", "number of requests queued in the server"),
    ):
        suffix = "_ratio" if unit == "ratio" else ""
        kind: Unit = "ratio" if unit == "ratio" else "count"
        yield _explaining(
            f"{name}_peak{suffix}", f"{label} peak", kind, f"highest {meaning}, as scraped", "server", _peak(gauge)
        )
        yield _explaining(
            f"{name}_mean{suffix}", f"{label} mean", kind, f"mean {meaning} in the window", "server", _gauge_mean(gauge)
        )
    for name, label, sentence, part, whole in (
        ("server_ttft_mean_s", "server's TTFT mean", "the server's own mean TTFT", "ttft_sum_s", "ttft_count"),
        ("server_itl_mean_s", "server's ITL mean", "the server's own mean inter-token gap", "itl_sum_s", "itl_count"),
    ):
        yield _explaining(name, label, "s", sentence, "server", _counted(part, whole))
    yield _explaining(
        "preemptions",
        "preemptions",
        "count",
        "sequences evicted to be computed again",
        "server",
        lambda view: view.counters.get("preemptions"),
    )
    yield _explaining(
        "prefix_hit_ratio",
        "prefix hits",
        "ratio",
        "share of prompt tokens found in the prefix cache",
        "server",
        _counted("prefix_hits", "prefix_queries"),
    )
    yield _explaining(
        "tokens_per_step",
        "tokens per step",
        "tokens",
        "tokens that one engine step processed, mean",
        "server",
        _counted("iteration_tokens_sum", "iteration_tokens_count"),
    )


def _clients() -> Iterator[Quantity]:
    yield _explaining(
        "send_lag_p99_s",
        "send lag p99",
        "s",
        "how late requests were sent, against their due time",
        "client",
        lambda view: quantile(view.lag_s, 0.99),
    )
    yield _explaining(
        "loop_lag_max_s",
        "event-loop lag max",
        "s",
        "longest the client's event loop was late",
        "client",
        lambda view: view.loop_lag_max_s,
    )
    yield _explaining(
        "client_cpu_ratio",
        "client CPU",
        "ratio",
        "share of one core that the client used",
        "client",
        lambda view: view.client_cpu_ratio,
    )


QUANTITIES: dict[str, Quantity] = {
    quantity.name: quantity for quantity in (*_latencies(), *_rates(), *_servers(), *_clients())
}
