"""What a server told about itself over a stretch of time: gauges as series, counters as growth."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadgen.records import Scrape

GAUGES = ("kv_usage_ratio", "running", "waiting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One gauge over time, ranks put together; `high` differs from `values` where ranks do (KV usage)."""

    at_s: NDArray[np.float64]
    values: NDArray[np.float64]
    high: NDArray[np.float64]

    def between(self, start_s: float, end_s: float) -> "Series":
        """The readings within a stretch, both ends included."""
        within = (self.at_s >= start_s) & (self.at_s <= end_s)
        return Series(at_s=self.at_s[within], values=self.values[within], high=self.high[within])


def good(scrapes: Iterable[Scrape]) -> tuple[Scrape, ...]:
    """The scrapes that were answered, in order of time."""
    return tuple(sorted((s for s in scrapes if s.failure is None and s.engines), key=lambda scrape: scrape.at_s))


def doubts(arm: str, scrapes: Sequence[Scrape], tolerated_ratio: float = 0.05) -> tuple[str, ...]:
    """What must be said of an arm's readings of /metrics: none of use, or more than a few that failed."""
    failed = [scrape.failure for scrape in scrapes if scrape.failure is not None]
    why = f"; the last failure: {failed[-1]}" if failed else ""
    if not good(scrapes):
        return (
            f"{arm}: no reading of the server's metrics{why}: KV usage, queue and preemptions are not seen, so that "
            "unused memory cannot be judged; start the server with its metrics on, or name its engine with --engine",
        )
    if len(failed) > tolerated_ratio * len(scrapes):
        return (f"{arm}: {len(failed)} of {len(scrapes)} readings of the server's metrics failed{why}",)
    return ()


def gauge(scrapes: Sequence[Scrape], name: str) -> Series:
    """A gauge over time. Ranks: running and waiting add up; of KV usage, the mean (and the highest as `high`)."""
    at, values, high = [], [], []
    for scrape in scrapes:
        ranks = [engine.values[name] for engine in scrape.engines if name in engine.values]
        if ranks:
            at.append(scrape.at_s)
            total = sum(ranks)
            values.append(total / len(ranks) if name == "kv_usage_ratio" else total)
            high.append(max(ranks) if name == "kv_usage_ratio" else total)
    return Series(at_s=np.array(at), values=np.array(values), high=np.array(high))


def counter(scrapes: Sequence[Scrape], name: str) -> Series:
    """How much a counter has grown since the first scrape.

    A fall is a restart: the new reading is growth from zero; so is a counter that appears later than the first scrape
    (a labelled counter is exported once it has counted).
    """
    grown = 0.0
    last: dict[str, float] = {}
    at, values = [], []
    for place, scrape in enumerate(scrapes):
        for engine in scrape.engines:
            if name not in engine.values:
                continue
            now = engine.values[name]
            before = last.get(engine.engine, 0.0 if place else now)
            grown += now - before if now >= before else now
            last[engine.engine] = now
        if last:
            at.append(scrape.at_s)
            values.append(grown)
    return Series(at_s=np.array(at), values=np.array(values), high=np.array(values))


def around(scrapes: Sequence[Scrape], start_s: float, end_s: float) -> tuple[Scrape, ...]:
    """The scrapes of a stretch, from the last one before it to the first one after it."""
    before = [scrape for scrape in scrapes if scrape.at_s <= start_s][-1:]
    after = [scrape for scrape in scrapes if scrape.at_s >= end_s][:1]
    return (*before, *(scrape for scrape in scrapes if start_s < scrape.at_s < end_s), *after)


def growth(scrapes: Sequence[Scrape], start_s: float, end_s: float) -> dict[str, float]:
    """How much each counter grew over a stretch: between the scrapes that stand around it."""
    stretch = around(scrapes, start_s, end_s)
    names = {name for scrape in stretch for engine in scrape.engines for name in engine.values} - set(GAUGES)
    if len(stretch) < 2:
        return {}
    return {name: float(counter(stretch, name).values[-1]) for name in sorted(names)}
