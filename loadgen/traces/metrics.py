"""What vLLM and SGLang count on /metrics -> a sampled workload: two scrapes or more, or a PromQL range.

What such counters hold of the traffic between two instants is kept: how many requests, the histograms of prompt and
answer lengths with their sums, the share of prompt tokens found in the prefix cache, and from a range how unsteady
arrivals were. What they do not hold is said in notes.
"""

import math
import random
from collections.abc import Iterator, Mapping
from itertools import pairwise

from loadgen.quantities import text
from loadgen.traces.engine_counters import FEWEST_INTERVALS, Measured, measured
from loadgen.traces.histogram import drawn
from loadgen.traces.options import number, whole
from loadgen.traces.prefixes import block_size, reach, shared_blocks
from loadgen.traces.rows import About, Format, Head, Item, Row, Source

MOST_ROWS = 10_000  # unless asked for more
KIND = "sampled"

OPTIONS = {
    "seconds": "between the first scrape and the last, which files of scrapes do not hold",
    "rows": f"how many requests to draw [as many as were counted, at most {MOST_ROWS:,}]",
    "seed": "of what is drawn [0]",
    "cv": "burstiness: coefficient of variation of the gaps between arrivals [as measured in a range, else 1: Poisson]",
    "model": "only series with this model_name",
}


def recognises(head: Head) -> bool:
    """True for Prometheus text with a series of an engine's, and for an answer to a PromQL query."""
    if head.text.lstrip().startswith("{"):
        return '"resultType"' in head.text[:4096]
    starts = tuple(f"{comment}{engine}" for comment in ("", "# HELP ", "# TYPE ") for engine in ("vllm:", "sglang:"))
    return any(line.startswith(starts) for line in head.lines)


def dispersion(intervals: tuple[float, ...]) -> float:
    """Index of dispersion of counts per interval, from the differences of neighbours: a slow change of the rate, such
    as a day's, does not count as burstiness. 1 for Poisson; of gaps that are independent, the square of their CV.
    """
    mean = math.fsum(intervals) / len(intervals)
    squares = [(after - before) ** 2 for before, after in pairwise(intervals)]
    return math.fsum(squares) / len(squares) / 2 / mean


def rows(source: Source) -> Iterator[Item]:
    """Drawn requests, in order of time, and what cannot be known. Raises UserError as `measured` does."""
    seen = measured(source)
    rng = random.Random(whole(source.options, "seed", 0))
    many = whole(source.options, "rows", min(MOST_ROWS, max(1, round(seen.requests))), least=1)
    cv = _cv(seen, source.options)
    yield from (About(note=note) for note in notes(seen, many, cv, "cv" in source.options))
    asked, answered = drawn(seen.inputs, many, rng), drawn(seen.outputs, many, rng)
    at_s = arrivals(many, 1 / seen.rate_per_s, cv, rng)
    wished = _wished(seen, asked, rng)
    block_tokens = block_size(asked)
    found = shared_blocks(asked, wished, block_tokens) if wished else [()] * many
    if wished:
        yield About(
            block_tokens=block_tokens, block_scope="global", note=_prefix_note(seen, reach(asked, found, block_tokens))
        )
    for at, input_tokens, output_tokens, blocks in zip(at_s, asked, answered, found, strict=True):
        yield Row(round(at * 1e9), input_tokens, output_tokens, blocks, kind=KIND)


def arrivals(rows: int, gap_s: float, cv: float, rng: random.Random) -> Iterator[float]:
    """Instants from 0, with gaps of the gamma distribution of this mean and coefficient of variation."""
    at_s = 0.0
    for _ in range(rows):
        yield at_s
        at_s += rng.gammavariate(1 / cv**2, gap_s * cv**2) if cv else gap_s


def _cv(seen: Measured, options: Mapping[str, str]) -> float:
    if "cv" in options:
        return number(options, "cv", zero=True)
    return math.sqrt(dispersion(seen.intervals)) if seen.intervals else 1.0


def _wished(seen: Measured, asked: list[int], rng: random.Random) -> list[float]:
    """Tokens that each prompt should find in an unlimited cache; empty for none.

    Uncached lengths go to prompts by rank, the longest to the longest; without them, each prompt has the same share.
    """
    if not seen.prefix_ratio:
        return []
    if seen.uncached is None:
        return [seen.prefix_ratio * length for length in asked]
    left = sorted(drawn(seen.uncached, len(asked), rng))
    order = sorted(range(len(asked)), key=asked.__getitem__)
    wished = [0.0] * len(asked)
    for rank, index in enumerate(order):
        wished[index] = max(0.0, asked[index] - left[rank])
    share = math.fsum(wished) / sum(asked)
    return [one * seen.prefix_ratio / share for one in wished] if share else []


def _prefix_note(seen: Measured, share: float) -> str:
    how = (
        "each prompt the same share"
        if seen.uncached is None
        else "uncached lengths as in the server's histogram, the longest to the longest prompts"
    )
    return (
        f"the server found {text(seen.prefix_ratio or 0.0, 'ratio')} of the prompt tokens in its prefix cache: the "
        f"prompts share one prefix, of which an unlimited cache finds {text(share, 'ratio')} ({how}); who shared what "
        "is not known, so a larger cache finds no more here, as it might have there"
    )


def notes(seen: Measured, many: int, cv: float, cv_given: bool) -> Iterator[str]:
    """What the user should know: what was measured, what was assumed."""
    yield (
        f"{many:,} rows drawn from what {seen.names.engine} counted of {seen.requests:,.0f} requests in "
        f"{seen.span_s:,.0f} s ({seen.rate_per_s:.3g}/s): not requests that were ever sent. Lengths of prompt and "
        "answer are drawn independently: their joint distribution, sessions and times within the span are not counted"
    )
    if seen.restarts:
        yield f"{seen.restarts} restarts of counters within the range; what they lost between two instants is missing"
    for what, found in (("prompts", seen.inputs), ("answers", seen.outputs)):
        if found.opened:
            yield (
                f"{text(found.opened / found.count, 'ratio')} of the {what} are longer than the last bucket's edge: up "
                f"to {found.buckets[-1].high:,.0f} tokens assumed"
            )
        if found.total is None:
            yield f"no sum of {what}' lengths: uniform on a logarithmic scale within buckets, and no more known"
        elif abs(found.fitted / found.total - 1) > 0.02:
            yield (
                f"lengths of {what} add up to {found.fitted:,.0f}, not to the {found.total:,.0f} that were summed: "
                "buckets and sum do not agree"
            )
    yield from _times(seen, cv, cv_given)
    if seen.prefix_ratio is None:
        yield "no counters of the prefix cache: nothing is shared"


def _times(seen: Measured, cv: float, cv_given: bool) -> Iterator[str]:
    if cv_given:
        yield f"arrivals: gaps with a coefficient of variation of {cv:g}, as asked"
    elif seen.intervals:
        mean = math.fsum(seen.intervals) / len(seen.intervals)
        yield (
            f"arrivals: gaps with a coefficient of variation of {cv:.2f}, from {len(seen.intervals)} intervals (index "
            f"of dispersion {cv**2:.2f} of requests that ended); the rate is the mean, and the busiest interval had "
            f"{max(seen.intervals) / mean:.2f} times that"
        )
    else:
        yield (
            "arrivals: Poisson is assumed; a PromQL range of "
            f"{FEWEST_INTERVALS + 1} instants or more tells how unsteady they were, --option cv=... sets it"
        )
    if seen.latency_s is not None:
        gauge = "" if seen.in_flight is None else f"; its gauges show {seen.in_flight:.3g} on average"
        yield (
            f"{seen.rate_per_s:.3g}/s of {seen.latency_s:.3g} s each are {seen.rate_per_s * seen.latency_s:.3g} "
            f"requests in flight (Little's law) on the server that was scraped{gauge}"
        )


FORMAT = Format(
    name="metrics",
    label="vLLM's or SGLang's /metrics: two scrapes, the earlier first, or the JSON answer to a PromQL range query",
    recognises=recognises,
    rows=rows,
    options=OPTIONS,
)
