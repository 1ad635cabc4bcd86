"""One table of everything measured: name, label, unit, which way is better, what it means, how it is written.

Validation, printing, the Prometheus names and the documentation read this table; a new metric is one row.
Only this room turns seconds into ms, bytes into GiB and ratios into percent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Unit = Literal["s", "tokens_per_s", "requests_per_s", "ratio", "count", "tokens", "bytes", "s_per_token"]
Better = Literal["higher", "lower"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One row: `better` is None for what merely explains (a cache that is full is neither good nor bad)."""

    name: str
    label: str
    unit: Unit
    better: Better
    sentence: str
    group: Literal["latency", "throughput", "server", "client"]

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
            return f"{value / size:.3g} {name}"
    return f"{value:.0f} B"


def _digits(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


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
            )


def _row(
    name: str, label: str, unit: Unit, better: Better, sentence: str, group: Literal["throughput", "server", "client"]
) -> Quantity:
    return Quantity(name=name, label=label, unit=unit, better=better, sentence=sentence, group=group)


QUANTITIES: dict[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        *_latencies(),
        _row(
            "output_tokens_per_s",
            "output",
            "tokens_per_s",
            "higher",
            "output tokens per second in the steady window",
            "throughput",
        ),
        _row(
            "total_tokens_per_s",
            "total",
            "tokens_per_s",
            "higher",
            "prompt and output tokens per second in the steady window",
            "throughput",
        ),
        _row(
            "requests_per_s",
            "requests",
            "requests_per_s",
            "higher",
            "requests completed per second of the stage",
            "throughput",
        ),
        _row(
            "goodput_per_s", "goodput", "requests_per_s", "higher", "requests per second that met the SLO", "throughput"
        ),
        _row("kv_usage_peak_ratio", "KV usage peak", "ratio", None, "highest share of KV blocks in use", "server"),
        _row("kv_usage_mean_ratio", "KV usage mean", "ratio", None, "mean share of KV blocks in use", "server"),
        _row("running_mean", "running mean", "count", None, "mean number of sequences in the batch", "server"),
        _row("running_peak", "running peak", "count", None, "most sequences in the batch", "server"),
        _row("waiting_mean", "waiting mean", "count", None, "mean number of requests queued in the server", "server"),
        _row("waiting_peak", "waiting peak", "count", None, "most requests queued in the server", "server"),
        _row("preemptions", "preemptions", "count", None, "sequences evicted to be computed again", "server"),
        _row(
            "prefix_hit_ratio",
            "prefix hits",
            "ratio",
            None,
            "share of prompt tokens found in the prefix cache",
            "server",
        ),
        _row(
            "tokens_per_step",
            "tokens per step",
            "tokens",
            None,
            "tokens that one engine step processed, mean",
            "server",
        ),
        _row("server_ttft_mean_s", "server's TTFT mean", "s", None, "the server's own mean TTFT", "server"),
        _row(
            "server_itl_mean_s", "server's ITL mean", "s", None, "the server's own mean inter-token latency", "server"
        ),
        _row(
            "send_lag_p99_s", "send lag p99", "s", None, "how late requests were sent, against their due time", "client"
        ),
        _row("loop_lag_max_s", "event-loop lag max", "s", None, "longest the client's event loop was late", "client"),
        _row("client_cpu_ratio", "client CPU", "ratio", None, "share of one core that the client used", "client"),
    )
}
