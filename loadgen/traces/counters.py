"""Prometheus counters over time, from scrapes or from a range query: what each grew by, and where it began again."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from loadgen.errors import UserError
from loadgen.traces.rows import named, shown
from loadgen.traces.sources import document, opened

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*", re.ASCII)
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_PREFIX = re.compile(r"^(vllm|sglang)_")  # exporters on the way write the colon so
NEWER_S = 0.001  # by which a `_created` moves only if the counter was made anew

Labels = tuple[tuple[str, str], ...]
Point = tuple[float, float]  # instant in s, value


@dataclass(frozen=True, slots=True)
class Growth:
    """What one series grew by over each interval that ends at an instant, and how often it began again."""

    labels: Mapping[str, str]
    steps: tuple[Point, ...]
    restarts: int = 0

    @property
    def total(self) -> float:
        """Over all intervals."""
        return math.fsum(step for _, step in self.steps)


@dataclass(frozen=True, slots=True)
class Readings:
    """Series by name and sorted labels, each a list of points in order of time; `instants` of all of them, in order.

    `scrapes`: read from files of Prometheus text, whose instants are only known from the user.
    """

    source: str
    series: Mapping[tuple[str, Labels], list[Point]]
    instants: tuple[float, ...]
    scrapes: bool

    def growths(self, name: str) -> Iterator[Growth]:
        """Of each series of a counter. One that is not there at first began at 0.

        After a restart, what the counter shows has been added since (as PromQL's increase() has it). Between scrapes a
        restart is a UserError: who gives two scrapes can give two others.
        """
        for (found, labels), points in self.series.items():
            if found == name:
                yield self._growth(name, labels, points)

    def gauge(self, name: str) -> float | None:
        """The mean over the instants of a gauge's sum over its series; None if there is none."""
        sums: dict[float, float] = {}
        for (found, _), points in self.series.items():
            for at_s, value in points if found == name else ():
                sums[at_s] = sums.get(at_s, 0.0) + value
        return math.fsum(sums.values()) / len(sums) if sums else None

    def _growth(self, name: str, labels: Labels, points: list[Point]) -> Growth:
        made_s = dict(self.series.get((_created(name), tuple(pair for pair in labels if pair[0] != "le")), ()))
        steps: list[Point] = []
        restarts = 0
        if points[0][0] > self.instants[0]:
            steps.append(points[0])
        for (before_s, before), (at_s, value) in pairwise(points):
            anew = value < before or made_s.get(at_s, -math.inf) > made_s.get(before_s, math.inf) + NEWER_S
            if anew and self.scrapes:
                raise self._restarted(name, labels, before, value)
            restarts += anew
            steps.append((at_s, value if anew else value - before))
        if self.scrapes and points[-1][0] < self.instants[-1]:
            raise self._restarted(name, labels, points[-1][1], None)
        return Growth(dict(labels), tuple(steps), restarts)

    def _restarted(self, name: str, labels: Labels, before: float, value: float | None) -> UserError:
        told = ",".join(f'{key}="{of}"' for key, of in labels)
        became = "is gone" if value is None else f"is {value:g}"
        return UserError(
            f"{self.source}: {name}{{{told}}}: was {before:g}, then {became}: the server was restarted between the "
            "scrapes, or they are in the wrong order; should be scrapes of one run of it, the earlier first"
        )


def _created(name: str) -> str:
    for end in ("_bucket", "_count", "_sum", "_total"):
        if name.endswith(end):
            return f"{name.removesuffix(end)}_created"
    return f"{name}_created"


def scraped(paths: Sequence[Path], seconds: float, wanted: frozenset[str]) -> Readings:
    """Scrapes in order of time, evenly spaced over `seconds`. Raises UserError for a line of other text."""
    series: dict[tuple[str, Labels], list[Point]] = {}
    instants = tuple(seconds * index / (len(paths) - 1) for index in range(len(paths)))
    for at_s, path in zip(instants, paths, strict=True):
        with opened(path) as lines:
            for number, line in enumerate(lines, 1):
                if line.strip() and not line.startswith("#"):
                    _take(series, line.strip(), at_s, wanted, f"{path}:{number}")
    return Readings(named(paths), series, instants, True)


def _take(
    series: dict[tuple[str, Labels], list[Point]], line: str, at_s: float, wanted: frozenset[str], where: str
) -> None:
    match = _LINE.fullmatch(line)
    try:
        value = float(match[3]) if match else None
    except ValueError:
        value = None
    if match is None or value is None:
        raise UserError(f"{where}: {shown(line)}: should be a line of Prometheus text: NAME{{LABELS}} VALUE")
    name = _PREFIX.sub(r"\1:", match[1])
    if name in wanted and math.isfinite(value):
        key = name, tuple(sorted(_LABEL.findall(match[2] or "")))
        series.setdefault(key, []).append((at_s, value))


QUERY = '{__name__=~"(vllm|sglang):.+_(bucket|sum|count|created|total)|(vllm|sglang):num_.+"}'


def ranged(paths: Sequence[Path], wanted: frozenset[str]) -> Readings:
    """What a PromQL range query answered, in one file or several. Raises UserError if it is anything else."""
    series: dict[tuple[str, Labels], dict[float, float]] = {}
    for path in paths:
        for number, found in enumerate(_results(path), 1):
            where = f"{path}: result {number}"
            metric = found.get("metric") if isinstance(found, dict) else None
            if not isinstance(metric, dict) or not isinstance(metric.get("__name__"), str):
                raise UserError(
                    f"{where}: metric: {shown(metric)}: has no name: increase() and rate() take it away; should be the "
                    f"counters themselves: query={QUERY}"
                )
            name = _PREFIX.sub(r"\1:", metric["__name__"])
            if name in wanted:
                labels = tuple(sorted((key, str(of)) for key, of in metric.items() if key != "__name__"))
                series.setdefault((name, labels), {}).update(_points(found.get("values"), where))
    kept = {key: sorted(points.items()) for key, points in series.items() if points}
    instants = sorted({at_s for points in kept.values() for at_s, _ in points})
    return Readings(named(paths), kept, tuple(instants), False)


def _results(path: Path) -> list[Any]:
    value = document(path)
    data = value.get("data", value) if isinstance(value, dict) else None
    if isinstance(value, dict) and value.get("status", "success") != "success":
        raise UserError(f"{path}: {shown(value.get('error'))}: Prometheus refused the query; should be its answer")
    if not isinstance(data, dict) or data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        kind = data.get("resultType") if isinstance(data, dict) else None
        raise UserError(
            f"{path}: resultType: {kind!r}: should be matrix, the answer of /api/v1/query_range (start, end, step) to "
            f"query={QUERY}"
        )
    result: list[Any] = data["result"]
    return result


def _points(values: Any, where: str) -> dict[float, float]:
    try:
        points = {float(at_s): float(value) for at_s, value in values}
    except (TypeError, ValueError) as error:
        raise UserError(f'{where}: values: {shown(values)}: should be a list of [instant, "value"]') from error
    return {at_s: value for at_s, value in points.items() if math.isfinite(value) and math.isfinite(at_s)}
