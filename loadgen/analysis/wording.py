"""Figures as they stand in sentences."""

from collections.abc import Mapping, Sequence

from loadgen.quantities import Unit, text
from loadgen.records import Estimate


def digits(value: float) -> str:
    """Three significant digits, thousands with commas."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def times(ratio: Estimate) -> str:
    """A ratio: "1.36× (1.28–1.45)"; without its interval where it has none."""
    if ratio.center is None:
        return "unknown"
    if ratio.lo is None or ratio.hi is None:
        return f"{_ratio(ratio.center)}×"
    return f"{_ratio(ratio.center)}× ({_ratio(ratio.lo)}–{_ratio(ratio.hi)})"


def _ratio(value: float) -> str:
    """Two decimals; three where two would make a 1.00 of what is not 1, so that an interval shows its side of it."""
    if not 0.1 <= value < 100:
        return digits(value)
    return f"{value:.3f}" if f"{value:.2f}" == "1.00" and value != 1 else f"{value:.2f}"


def span(estimate: Estimate, unit: Unit) -> str:
    """A figure with its interval: "6.58 ms (6.55–6.61)" in words of its unit."""
    center = text(estimate.center, unit)
    if estimate.lo is None or estimate.hi is None:
        return center
    return f"{center} ({text(estimate.lo, unit)} to {text(estimate.hi, unit)})"


def counted(counts: Mapping[str, int]) -> str:
    """ "2 timeout, 1 truncated"."""
    return ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items())


def listed(words: Sequence[str]) -> str:
    """ "a, b and c"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def many(count: int, word: str) -> str:
    """ "1 block", "2 blocks"."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
