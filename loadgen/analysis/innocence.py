"""Is the client innocent of what it measured? Each check has a limit; past it the stage's verdicts are withdrawn.

* Event-loop lag, the worst of each watch interval; limit: the larger of 5 ms and a quarter of the median ITL.
  The 95th percentile beyond it withdraws the tails (p95, p99) of ITL and TPOT; the median beyond it, all of the stage.
* Client CPU over the stage; limit 0.85 of one core; withdraws all of the stage.
* Send lag p99, open loop; limit: the larger of 5 ms and a twentieth of the median TTFT; withdraws all of the stage.
* The client's mean TTFT above the server's own; limit: the larger of 10 ms and 10 %; withdraws TTFT and E2E.
* The client's mean ITL above the server's own; limit: the larger of 1 ms and 10 %; withdraws ITL, TPOT and E2E.

The limits hold for each arm by itself: a client that is late on both arms alike still dilutes the difference.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.analysis.compare import Late
from loadgen.analysis.study import Study
from loadgen.analysis.windows import StageData
from loadgen.quantities import mean, quantile, text
from loadgen.records import Check, StageSpec

LAG_S, LAG_OF_ITL = 0.005, 0.25
SEND_LAG_S, SEND_LAG_OF_TTFT = 0.005, 0.05
CPU_RATIO = 0.85
TTFT_S, ITL_S, OF_SERVER = 0.010, 0.001, 0.10
COUNTED_ALIKE = 0.10
TAILS = ("itl_p95", "itl_p99", "tpot_p95", "tpot_p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One check on one stage of one arm: past its limit, within it, or not observable (None)."""

    passed: bool | None
    figure: str
    quantities: tuple[str, ...] = ()


def innocence(study: Study) -> tuple[tuple[Check, ...], tuple[Late, ...]]:
    """The checks, one line per stage and kind, and what they forbid."""
    checks: list[Check] = []
    late: list[Late] = []
    for spec in study.stages:
        for name, look in (
            ("event-loop lag", _loop_lag),
            ("client CPU", _cpu),
            ("send lag", _send_lag),
            ("TTFT as the server saw it", _ttft),
            ("ITL as the server saw it", _itl),
        ):
            if name == "send lag" and spec.concurrency is not None:
                continue
            seen = {arm: look(study.of(spec.name, arm)) for arm in study.labels if study.of(spec.name, arm)}
            if seen:
                checks.append(_check(spec, name, seen))
            late += [
                Late(stage=spec.name, reason=f"{name} on {arm}: {one.figure}", quantities=one.quantities)
                for arm, one in seen.items()
                if one.passed is False
            ]
    return tuple(checks), tuple(late)


def _check(spec: StageSpec, name: str, seen: dict[str, Seen]) -> Check:
    verdicts = [one.passed for one in seen.values()]
    passed = False if False in verdicts else None if None in verdicts else True
    figures = "; ".join(f"{arm} {one.figure}" for arm, one in seen.items())
    return Check(name=f"{spec.name}: {name}", passed=passed, figure=figures)


def _loop_lag(held: Sequence[StageData]) -> Seen:
    lags = np.sort([h.loop_lag_max_s for one in held for h in one.health])
    usual, often = quantile(lags, 0.5), quantile(lags, 0.95)
    if usual is None or often is None:
        return Seen(passed=None, figure="not watched")
    itl = _median(held, "itl")
    limit = max(LAG_S, LAG_OF_ITL * itl) if itl is not None else LAG_S
    return Seen(
        passed=often <= limit,
        figure=_limited(f"p50 {text(usual, 's')}, p95 {text(often, 's')}", limit),
        quantities=() if usual > limit else TAILS,
    )


def _cpu(held: Sequence[StageData]) -> Seen:
    shares = [one.view.client_cpu_ratio for one in held if one.view.client_cpu_ratio is not None]
    if not shares:
        return Seen(passed=None, figure="not watched")
    most = max(shares)
    return Seen(passed=most <= CPU_RATIO, figure=f"{text(most, 'ratio')} of a core (limit {text(CPU_RATIO, 'ratio')})")


def _send_lag(held: Sequence[StageData]) -> Seen:
    lags = np.sort([sample.lag_s for one in held for sample in one.samples if sample.lag_s is not None])
    late = quantile(lags, 0.99)
    if late is None:
        return Seen(passed=None, figure="no due times")
    limit = max(SEND_LAG_S, SEND_LAG_OF_TTFT * (_median(held, "ttft") or 0.0))
    return Seen(passed=late <= limit, figure=_limited(f"p99 {text(late, 's')}", limit))


def _median(held: Sequence[StageData], latency: str) -> float | None:
    pooled = [one.view.latencies[latency] for one in held]
    return quantile(np.sort(np.concatenate(pooled)), 0.5) if pooled else None


def _limited(figure: str, limit_s: float) -> str:
    return f"{figure} (limit {text(limit_s, 's')})"


def _ttft(held: Sequence[StageData]) -> Seen:
    return _agrees(held, "ttft", TTFT_S, ("ttft", "e2e"))


def _itl(held: Sequence[StageData]) -> Seen:
    return _agrees(held, "itl", ITL_S, ("itl", "tpot", "e2e"))


def _agrees(held: Sequence[StageData], latency: str, least_s: float, quantities: tuple[str, ...]) -> Seen:
    """The client's mean against the server's histogram over the same stage: sum and count, as they grew.

    Where the server counted another number of events than the client, it did other work as well (another client,
    a neighbouring stage within the same scrape), and the means are not of the same requests.
    """
    client = np.concatenate([one.view.latencies[latency] for one in held])
    total_s = sum(one.view.counters.get(f"{latency}_sum_s", 0.0) for one in held)
    count = sum(one.view.counters.get(f"{latency}_count", 0.0) for one in held)
    seen_s = mean(client)
    if not count or seen_s is None:
        return Seen(passed=None, figure="the server does not tell")
    server_s = total_s / count
    figure = f"{text(seen_s, 's')} here, {text(server_s, 's')} there"
    if abs(count - len(client)) > COUNTED_ALIKE * len(client):
        return Seen(passed=None, figure=f"{figure}, but of {count:,.0f} events there and {len(client):,} here")
    late = seen_s - server_s > max(least_s, OF_SERVER * server_s)
    return Seen(passed=not late, figure=figure, quantities=quantities)


def withdrawn(late: Sequence[Late]) -> Iterator[str]:
    """What the report must say of each stage that the client spoiled."""
    for stage in dict.fromkeys(one.stage for one in late):
        reasons = "; ".join(one.reason for one in late if one.stage == stage)
        some = all(one.quantities for one in late if one.stage == stage)
        what = "the verdicts concerned are" if some else "all its verdicts are"
        yield f"{stage}: the client was late ({reasons}): {what} withdrawn; give it a core of its own or lower the load"
