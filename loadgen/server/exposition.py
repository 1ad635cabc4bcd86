"""Prometheus text -> an engine's canonical quantities, per rank."""

import math
import re
from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as MetricSample

from loadgen.engines.engine import Engine
from loadgen.records import EngineScrape

_SAMPLE = re.compile(
    r"^[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{.*\})? [-+0-9.eE]+|^[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{.*\})? (?:NaN|[+-]Inf)"
)
_LARGEST = frozenset({"kv_usage_ratio"})


def samples(body: str, wanted: Iterable[str]) -> list[MetricSample]:
    """The samples of the `wanted` names in a body of Prometheus text.

    Only their lines are parsed: a vLLM body is 600 lines and more, of which about twenty matter. Type lines are left
    out, so that every sample keeps its full name (`_total`, `_sum`); `_created` samples have names of their own.
    Raises ValueError for a line that is not Prometheus text.
    """
    names = frozenset(wanted)
    kept = [line for line in body.splitlines() if line.partition("{")[0].partition(" ")[0] in names]
    if not kept:
        return []
    families = text_string_to_metric_families("\n".join(kept) + "\n")
    try:
        return [sample for family in families for sample in family.samples]
    except OverflowError as error:  # the parser divides a timestamp of any number of digits
        raise ValueError("a timestamp beyond all numbers") from error


def is_prometheus(body: str) -> bool:
    """True if the body has at least one sample line of Prometheus text."""
    return any(_SAMPLE.match(line) for line in body.splitlines())


def canonical(body: str, engine: Engine) -> tuple[EngineScrape, ...]:
    """One `EngineScrape` per rank, in the order of their labels; ranks that have no label are rank "0".

    Of a quantity's names by version the first that is there wins. Several samples of one name and rank (by finish
    reason, by model) add up, but a usage ratio is the largest. A value or a sum that is NaN or infinite is not there.
    Raises ValueError for a line that cannot be parsed.
    """
    wanted = [name for names in engine.metrics.values() for name in names]
    by_rank: dict[str, dict[str, list[float]]] = {}
    for sample in samples(body, wanted):
        value = _float(sample.value)
        if not math.isfinite(value):  # "no observation yet" in some exporters, and no value in JSON
            continue
        rank = sample.labels.get(engine.rank_label, "0")
        by_rank.setdefault(rank, {}).setdefault(sample.name, []).append(value)
    return tuple(
        EngineScrape(engine=rank, values=_by_quantity(by_rank[rank], engine.metrics))
        for rank in sorted(by_rank, key=lambda rank: (len(rank), rank))
    )


def _float(value: float) -> float:
    """The parser gives whole numbers as int, of any number of digits."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _by_quantity(found: Mapping[str, list[float]], metrics: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    values: dict[str, float] = {}
    for quantity, names in metrics.items():
        name = next((name for name in names if name in found), None)
        if name is not None:
            value = max(found[name]) if quantity in _LARGEST else sum(found[name])
            if math.isfinite(value):  # two finite values of 1e308 add up to none
                values[quantity] = value
    return values


def labels_of(body: str, name: str) -> dict[str, str] | None:
    """The labels of the first sample called `name`; None if there is none, or if the body is no Prometheus text."""
    try:
        found = samples(body, (name,))
    except ValueError:
        return None
    return dict(found[0].labels) if found else None
