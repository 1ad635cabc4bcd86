"""What a picture of a trace is drawn from: lengths in doubling bins, and what happens over time. Pure."""

from typing import NamedTuple

import numpy as np

from loadgen.traces.columns import Floats
from loadgen.traces.reuse import Ints

WIDTHS_S = (10.0, 60.0, 600.0, 3600.0, 86400.0)
MOST_BINS = 1_000


class Bin(NamedTuple):
    """Values from `low` up to, not including, `high`."""

    low: int
    high: int
    rows: int


def doublings(values: Ints) -> list[Bin]:
    """Whole numbers of at least 1 in bins [1, 2), [2, 4), [4, 8) ..., from the first that is not empty to the last."""
    powers = np.frexp(values.astype(np.float64))[1] - 1
    counts = np.bincount(powers)
    return [Bin(2**power, 2 ** (power + 1), int(counts[power])) for power in range(int(powers.min()), len(counts))]


def width_s(span_s: float) -> float:
    """Of bins over time: a length that a person thinks in, for at most a thousand bins where possible."""
    return next((width for width in WIDTHS_S if span_s / width <= MOST_BINS), WIDTHS_S[-1])


def per_second(at_s: Floats, width_s: float) -> tuple[Floats, Floats]:
    """The beginnings of the bins, and the rate in each."""
    counts = np.bincount((at_s // width_s).astype(np.int64))
    return np.arange(len(counts), dtype=np.float64) * width_s, (counts / width_s).astype(np.float64)


def highest(instants: Floats, values: Ints, width_s: float) -> tuple[Floats, Floats]:
    """The beginnings of the bins, and the highest value in each, of a quantity that changes at the instants."""
    begins = np.arange(int(instants[-1] // width_s) + 1, dtype=np.float64) * width_s
    edges = np.searchsorted(instants, begins, side="left")
    carried = np.where(edges > 0, values[np.maximum(edges - 1, 0)], 0)
    inside = np.maximum.reduceat(np.append(values, 0), np.minimum(edges, len(values)))
    empty = np.append(edges[1:], len(values)) == edges
    return begins, np.where(empty, carried, np.maximum(inside, carried)).astype(np.float64)
