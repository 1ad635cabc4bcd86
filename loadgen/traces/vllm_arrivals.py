"""Arrivals from vLLM's log (`--enable-log-requests`), with lengths from elsewhere: the log has no prompt's length.

A line of INFO gives the second, without a year, and `max_tokens`. Lengths are drawn from `--option lengths=FILE`: a
canonical trace, or two scrapes (comma between them) or a PromQL range of /metrics. Lines that hold text of answers
are not looked at beyond their beginning. Source: vLLM 0.32 `entrypoints/serve/utils/request_logger.py`, `logger.py`.
"""

import random
import re
from collections.abc import Iterator
from pathlib import Path

from loadgen.errors import UserError
from loadgen.traces import canonical, metrics
from loadgen.traces.instants import stamp_ns
from loadgen.traces.options import whole
from loadgen.traces.rows import About, Format, Head, Item, Row, Source
from loadgen.traces.sources import head, opened
from loadgen.traces.values import Place

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(
    r"(?:\(\w+(?: pid=\d+)?\) )?(?:DEBUG|INFO|WARNING|ERROR) (\d\d)-(\d\d) (\d\d:\d\d:\d\d) \[[\w./-]+:\d+\] (.{0,100})"
)
_RECEIVED = re.compile(r"Received request \S+: ")
_MOST = re.compile(r"\bmax_tokens=(\d{1,9})\b")
_PARAMETERS = "SamplingParams("
NEW_YEAR_MONTHS = 6  # a month that is so much lower than the last line's is the next year's
FIRST_YEAR = 2025  # of a log without one: any that is no leap year

OPTIONS = {
    "lengths": "where lengths come from: a canonical trace, or BEFORE,AFTER (scrapes), or a PromQL range's JSON",
    "seconds": "between the scrapes in lengths",
    "year": f"of the first line [{FIRST_YEAR}]: matters for 29 February alone",
    "seed": "of the lengths drawn [0]",
}


def recognises(head: Head) -> bool:
    """True if a line begins as vLLM's do, or has its message about a request."""
    return any(_LINE.match(_COLOUR.sub("", line)) for line in head.lines[:200])


def rows(source: Source) -> Iterator[Item]:
    """An arrival per request in the order of the log. Raises UserError as its sources do."""
    pool = _lengths(source)
    rng = random.Random(whole(source.options, "seed", 0))
    rng.shuffle(pool)
    year = whole(source.options, "year", FIRST_YEAR, least=1)
    many = cut = 0
    for path in source.paths:
        for at_ns, most in _arrivals(path, year):
            if many and many % len(pool) == 0:
                rng.shuffle(pool)
            input_tokens, output_tokens = pool[many % len(pool)]
            many += 1
            cut += most is not None and output_tokens > most
            yield Row(at_ns, input_tokens, min(output_tokens, most or output_tokens), kind=metrics.KIND)
    yield About(
        note=f"arrivals are the log's; lengths are drawn from {source.options['lengths']} ({len(pool):,} pairs), and "
        "which request had which is not known"
    )
    if cut:
        yield About(note=f"{cut:,} answers were cut at their request's max_tokens")


def _arrivals(path: Path, year: int) -> Iterator[tuple[int, int | None]]:
    """When each request came, and its max_tokens."""
    before = 0
    with opened(path) as lines:
        for number, line in enumerate(lines, 1):
            match = _LINE.match(_COLOUR.sub("", line))
            if match is None:
                continue
            month, day, clock, message = match.groups()
            year += before - int(month) >= NEW_YEAR_MONTHS
            before = int(month)
            if _RECEIVED.match(message):
                yield _stamp(f"{year:04}-{month}-{day} {clock}", Place(path, number)), _most_tokens(line)


def _stamp(text: str, place: Place) -> int:
    try:
        return stamp_ns(text)
    except ValueError as error:
        raise place.wrong("time", text, f"{error}; --option year=... names the first line's year") from error


def _most_tokens(line: str) -> int | None:
    _, found, parameters = line.rpartition(_PARAMETERS)
    match = _MOST.search(parameters) if found else None
    return int(match[1]) if match and int(match[1]) > 0 else None


def _lengths(source: Source) -> list[tuple[int, int]]:
    given = source.options.get("lengths")
    if not given:
        raise UserError(
            "--option lengths: missing: vLLM's log has no lengths; should name a canonical trace or scrapes of /metrics"
        )
    paths = tuple(Path(part.strip()) for part in given.split(","))
    options = {key: of for key, of in source.options.items() if key in ("seconds", "seed")}
    for format in (canonical.FORMAT, metrics.FORMAT):
        if format.recognises(head(paths[0])):
            taken = {key: of for key, of in options.items() if key in format.options}
            items = format.rows(Source(paths=paths, options=taken))
            found = [(row.input_tokens, row.output_tokens) for row in items if isinstance(row, Row)]
            pool = [pair for pair in found if all(pair)]
            if pool:
                return pool
            raise UserError(f"{given}: no row; should hold lengths")
    raise UserError(f"{paths[0]}: should be a canonical trace or scrapes of /metrics, for --option lengths")


FORMAT = Format(
    name="vllm-log",
    label="vLLM's log with --enable-log-requests: arrivals; lengths from --option lengths=FILE",
    recognises=recognises,
    rows=rows,
    time_quantum_s=1.0,
    options=OPTIONS,
)
