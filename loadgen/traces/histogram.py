"""A histogram of lengths -> lengths: as many in each bucket as were counted, and the mean that was summed up."""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loadgen.errors import UserError
from loadgen.traces.counters import Readings

QUADRATURE = 24  # points within a bucket for its mean
STEPS = 40  # of the bisection
BEND = 64.0  # the exponent lies between 1 / BEND and BEND
OPEN_BEND = 0.5  # an open last bucket is made wider until less than this bends it
WIDEST = 2**12  # times its lower edge


@dataclass(frozen=True, slots=True)
class Bucket:
    """Lengths above `low`, up to and with `high`, of which `count` were seen."""

    low: float
    high: float
    count: float


@dataclass(frozen=True, slots=True)
class Lengths:
    """Buckets with closed ends, and the exponent that draws lengths within each towards its upper (< 1) or lower edge.

    `total`: the sum as the server counted it; None if it did not say.
    """

    buckets: tuple[Bucket, ...]
    bend: float
    total: float | None
    opened: float = 0.0  # count of the last, open bucket

    @property
    def count(self) -> float:
        """Of lengths seen."""
        return math.fsum(bucket.count for bucket in self.buckets)

    @property
    def fitted(self) -> float:
        """The sum of as many lengths as the buckets give with this bend."""
        return _sum(self.buckets, self.bend)


def lengths(readings: Readings, stem: str) -> Lengths | None:
    """The histogram `stem` over all its series, as it grew; None if it did not.

    Edges are those that the series name (`le`); series of unlike edges are kept apart. Raises UserError where a series
    has no `+Inf` bucket, or an edge is not a number.
    """
    series: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    for growth in readings.growths(f"{stem}_bucket"):
        labels = dict(growth.labels)
        edge = _edge(labels.pop("le", None), readings, stem)
        series.setdefault(tuple(sorted(labels.items())), {})[edge] = growth.total
    counted: defaultdict[tuple[float, float], float] = defaultdict(float)
    for upto in series.values():
        if math.inf not in upto:
            raise UserError(f'{readings.source}: {stem}_bucket: no le="+Inf"; should hold every bucket')
        edges = sorted(upto)
        for low, high in pairwise([0.0, *edges]):
            counted[low, high] += max(0.0, upto[high] - upto.get(low, 0.0))
    sums = [growth.total for growth in readings.growths(f"{stem}_sum")]
    buckets = [Bucket(low, high, count) for (low, high), count in sorted(counted.items()) if count > 0]
    return fitted(buckets, math.fsum(sums) if sums else None) if buckets else None


def _edge(le: str | None, readings: Readings, stem: str) -> float:
    try:
        edge = float(le) if le is not None else math.nan
    except ValueError:
        edge = math.nan
    if not edge >= 0:
        raise UserError(f"{readings.source}: {stem}_bucket: le: {le!r}: should be a number of tokens, or +Inf")
    return edge


def fitted(buckets: Sequence[Bucket], total: float | None) -> Lengths:
    """`buckets` with the bend that makes their lengths add up to `total`.

    Within a bucket the logarithm of a length is uniform, but for one exponent common to all buckets, which moves the
    sum and lets no length leave its bucket. A last bucket without an upper edge ends at twice its lower edge, or at as
    many doublings more as the sum needs.
    """
    opened = math.fsum(bucket.count for bucket in buckets if math.isinf(bucket.high))
    factor = 2.0
    while True:
        closed = tuple(
            Bucket(one.low, max(2.0, one.low) * factor if math.isinf(one.high) else one.high, one.count)
            for one in buckets
        )
        bend = 1.0 if total is None else _bend(closed, total)
        if not opened or bend >= OPEN_BEND or factor >= WIDEST:
            return Lengths(closed, bend, total, opened)
        factor *= 2


def _bend(buckets: Sequence[Bucket], total: float) -> float:
    """The exponent by bisection: the sum falls as it grows."""
    low, high = -math.log(BEND), math.log(BEND)
    for _ in range(STEPS):
        middle = (low + high) / 2
        if _sum(buckets, math.exp(middle)) > total:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def _sum(buckets: Iterable[Bucket], bend: float) -> float:
    places = [((index + 0.5) / QUADRATURE) ** bend for index in range(QUADRATURE)]
    return math.fsum(
        bucket.count * math.fsum(_length(bucket, place) for place in places) / QUADRATURE for bucket in buckets
    )


def _length(bucket: Bucket, place: float) -> int:
    """The whole length at `place` (0..1) of a bucket, on a logarithmic scale."""
    first, last = math.floor(bucket.low) + 1, max(math.floor(bucket.low) + 1, math.floor(bucket.high))
    length = (first - 0.5) * math.pow((last + 0.5) / (first - 0.5), place)
    return min(last, max(first, round(length)))


def drawn(lengths: Lengths, rows: int, rng: random.Random) -> list[int]:
    """`rows` lengths in random order: the buckets in their shares to the nearest row, each filled evenly."""
    shares = [bucket.count * rows / lengths.count for bucket in lengths.buckets]
    taken = [math.floor(share) for share in shares]
    most = sorted(range(len(shares)), key=lambda index: taken[index] - shares[index])
    for index in most[: rows - sum(taken)]:
        taken[index] += 1
    found = [
        _length(bucket, ((index + rng.random()) / many) ** lengths.bend)
        for bucket, many in zip(lengths.buckets, taken, strict=True)
        for index in range(many)
    ]
    rng.shuffle(found)
    return found
