"""ServeGen's clients: requests drawn from what was measured of each client, window by window.

A client is two files. chunk-N-trace.csv has no header: start of a window (s; 600 s wide), rate, cv, pattern of the gaps
(Gamma, Weibull or none), its shape and scale. chunk-N-dataset.json has, per longer window, how often each number of
input and of output tokens occurred: texts that hold a Python dict.

Of each window rate x width requests are drawn. Their gaps have the pattern's shape, stretched so that the window is
filled; without a pattern they are exponential. Lengths are drawn one by one and, as the source has no more than their
frequencies, input and output independently. A window's draws depend on the seed, the client and the window alone, so
`window` cuts a part out of the same trace. Source: github.com/alibaba/ServeGen (arXiv 2505.09999).
"""

import heapq
import itertools
import math
import random
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

from loadgen.traces.options import span, whole
from loadgen.traces.rows import About, Dropped, Format, Head, Item, Row, Source
from loadgen.traces.servegen_files import Client, Lengths, Window, clients
from loadgen.traces.sources import header_cells

TRACE_LINE = re.compile(r"[\d.]+,[\d.eE+-]+,[\d.eE+-]*,(?:Gamma|Weibull|),[\d.eE+-]*,[\d.eE+-]*", re.ASCII)
PARTS = re.compile(r"(.*)-(?:trace\.csv|dataset\.json)")
Gap = Callable[[], float]


def recognises(head: Head) -> bool:
    """True for a client's trace (from its first line) or dataset, and for a folder that holds both of a client."""
    if head.files:
        return any(
            f"{match[1]}-trace.csv" in head.files and f"{match[1]}-dataset.json" in head.files
            for match in map(PARTS.fullmatch, head.files)
            if match
        )
    if len(header_cells(head)) == 6:
        return TRACE_LINE.fullmatch(head.lines[0]) is not None
    return re.match(r'\s*\{\s*"\d[\d.]*"\s*:\s*\{\s*"(?:in|out)put_tokens"\s*:\s*"\{', head.text) is not None


class _Drawn(NamedTuple):
    """A request, or the reason why there is none."""

    at_s: float
    item: Row | Dropped


def rows(source: Source) -> Iterator[Item]:
    """The requests of all clients in order of time. Raises UserError for malformed files and options."""
    seed, part = whole(source.options, "seed", 0), span(source.options, "window")
    found = clients(source.paths)
    told = f" from {part[0]:g} s to {part[1]:g} s" if part else ""
    yield About(
        note=f"requests are drawn, not recorded: {len(found):,} clients' measured rates and lengths{told}, "
        f"seed {seed}; input and output lengths are independent"
    )
    low, high = part or (0.0, math.inf)
    streams = [_drawn(client, seed, low, high) for client in found]
    for drawn in heapq.merge(*streams, key=attrgetter("at_s")):
        yield drawn.item


def _drawn(client: Client, seed: int, low: float, high: float) -> Iterator[_Drawn]:
    for window in client.windows:
        if window.start_s + window.width_s <= low or window.start_s >= high:
            continue
        draws = random.Random(f"{seed}:{client.name}:{window.start_s!r}")
        lengths = client.lengths(window.start_s)
        for at_s in instants(window, draws):
            item = _request(client.name, at_s, lengths, draws)
            if low <= at_s < high:
                yield _Drawn(at_s, item)


def _request(kind: str, at_s: float, lengths: tuple[Lengths, Lengths], draws: random.Random) -> Row | Dropped:
    asked, answered = lengths
    if not asked.tokens or not answered.tokens:
        return Dropped("no lengths for that window")
    return Row(
        at_ns=round(at_s * 1e9), input_tokens=drawn(asked, draws), output_tokens=drawn(answered, draws), kind=kind
    )


def drawn(lengths: Lengths, draws: random.Random) -> int:
    """A number of tokens, as often as it occurred."""
    return lengths.tokens[bisect_right(lengths.cumulative, draws.random() * lengths.cumulative[-1])]


def instants(window: Window, draws: random.Random) -> Iterator[float]:
    """A window's arrivals in order: rate x width of them, a fraction of one by chance.

    One gap more than arrivals is drawn, and all are stretched to fill the window: n arrivals lie between n + 1 gaps.
    """
    expected = window.rate_per_s * window.width_s
    count = math.floor(expected + 1e-6)  # 0.155/s over 600 s are 93, though their product in floats is less
    count += draws.random() < expected - count
    gap = _gap(window, draws)
    gaps = [gap() for _ in range(count + 1)]
    total = sum(gaps) or 1.0
    for passed in itertools.accumulate(gaps[:-1]):
        yield window.start_s + min(passed / total, 1 - 2**-53) * window.width_s


def _gap(window: Window, draws: random.Random) -> Gap:
    if window.pattern == "Gamma":
        return lambda: draws.gammavariate(window.shape, 1.0)
    if window.pattern == "Weibull":
        return lambda: draws.weibullvariate(1.0, window.shape)
    return lambda: draws.expovariate(1.0)


FORMAT = Format(
    name="servegen",
    label="chunk-N-trace.csv (window s, rate, cv, pattern, shape, scale) and chunk-N-dataset.json; a folder of them",
    recognises=recognises,
    rows=rows,
    options={
        "seed": "of everything that is drawn [default: 0]",
        "window": "FROM:TO in seconds, the part of the days to draw [default: all]",
    },
    folders=True,
)
