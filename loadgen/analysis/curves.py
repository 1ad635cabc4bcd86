"""The series that a report draws."""

from collections.abc import Iterator

import numpy as np

from loadgen.analysis import scrapes as readings
from loadgen.analysis.study import Study
from loadgen.analysis.windows import StageData
from loadgen.records import Curve, StageSpec

POINTS = 300
QUANTILES = 101
POOLED = -1


def curves(study: Study) -> tuple[Curve, ...]:
    """Over time: KV usage, running, waiting, preemptions since the stage's start, by arm, the middle block first,
    then all others, each of at most 300 points. Over quantiles: TTFT and ITL of each arm, blocks pooled (block -1).
    Not of a grid's cells: the map sums them up.
    """
    return tuple(
        curve
        for spec in study.stages
        if spec.context_tokens is None
        for arm in study.labels
        for curve in (*_over_time(study, spec, arm), *_over_quantiles(study, spec, arm))
    )


def _over_time(study: Study, spec: StageSpec, arm: str) -> Iterator[Curve]:
    held = list(study.of(spec.name, arm))
    if held:
        held.insert(0, held.pop(len(held) // 2))
    for one in held:
        for name in (*readings.GAUGES, "preemptions"):
            curve = _series(one, name, arm)
            if curve.x:
                yield curve


def _series(one: StageData, name: str, arm: str) -> Curve:
    series = readings.counter(one.scrapes, name) if name == "preemptions" else readings.gauge(one.scrapes, name)
    series = series.between(one.start_s, one.end_s)
    kept = np.unique(np.linspace(0, max(len(series.at_s) - 1, 0), POINTS).round().astype(int))[: len(series.at_s)]
    return Curve(
        quantity=name,
        kind="time",
        stage=one.spec.name,
        arm=arm,
        block=one.block.manifest.order,
        x=tuple((series.at_s[kept] - one.start_s).tolist()),
        y=tuple(series.values[kept].tolist()),
    )


def _over_quantiles(study: Study, spec: StageSpec, arm: str) -> Iterator[Curve]:
    shares = np.linspace(0, 1, QUANTILES)
    for latency in ("ttft", "itl"):
        pooled = [one.view.latencies[latency] for one in study.of(spec.name, arm)]
        values = np.concatenate(pooled) if pooled else np.empty(0)
        if len(values):
            yield Curve(
                quantity=f"{latency}_s",
                kind="quantile",
                stage=spec.name,
                arm=arm,
                block=POOLED,
                x=tuple(shares.tolist()),
                y=tuple(np.quantile(values, shares).tolist()),
            )
