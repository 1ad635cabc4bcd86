"""Shares with their 95 % intervals, and whether a target is met."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Z = 1.96


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share of rows or cases, 0..1, with its interval."""

    value: float
    lo: float
    hi: float
    total: int

    def __str__(self) -> str:
        if not self.total:
            return "–"
        return f"{100 * self.value:.1f} % ({100 * self.lo:.1f}–{100 * self.hi:.1f})"

    def judged(self, low: float, high: float) -> str:
        """met: the share lies within; not told: outside, its interval reaches in; missed: all of it is outside."""
        if not self.total:
            return "no case"
        if low <= self.value <= high:
            return "met"
        return "not told apart" if self.lo <= high and self.hi >= low else "missed"


def share(flags: Iterable[bool]) -> Share:
    """Of independent cases: Wilson's interval."""
    held = list(flags)
    count, total = sum(held), len(held)
    if not total:
        return Share(value=0.0, lo=0.0, hi=1.0, total=0)
    rate, square = count / total, Z * Z / total
    center = (rate + square / 2) / (1 + square)
    half = Z * math.sqrt(rate * (1 - rate) / total + square / 4 / total) / (1 + square)
    return Share(value=rate, lo=max(0.0, center - half), hi=min(1.0, center + half), total=total)


def clustered(groups: Sequence[Sequence[bool]]) -> Share:
    """Of rows that come in groups (those of one comparison go together): a ratio estimate over groups."""
    total = sum(len(group) for group in groups)
    if not total:
        return share([])
    rate = sum(sum(group) for group in groups) / total
    squares = sum((sum(group) - rate * len(group)) ** 2 for group in groups)
    half = Z * math.sqrt(squares * len(groups) / max(1, len(groups) - 1)) / total
    if not half:  # none, or all, of the rows: as if each group were one row
        found = share([rate > 0] * sum(bool(group) for group in groups))
        return Share(value=rate, lo=found.lo, hi=found.hi, total=total)
    return Share(value=rate, lo=max(0.0, rate - half), hi=min(1.0, rate + half), total=total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a share should be: between `low` and `high`. `minor`: one of many of a kind."""

    name: str
    seed: int
    found: Share
    low: float
    high: float
    minor: bool = False

    @property
    def word(self) -> str:
        """met, not told apart, missed, or no case."""
        return self.found.judged(self.low, self.high)

    @property
    def asked(self) -> str:
        """ "at most 5 %"."""
        if self.low <= 0:
            return f"at most {100 * self.high:.0f} %"
        least = f"{100 * self.low:.0f}"
        return f"at least {least} %" if self.high >= 1 else f"{least} to {100 * self.high:.0f} %"
