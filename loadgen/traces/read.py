"""Any trace file -> the canonical `Trace`: seconds from its first row, in order, every row accounted for.

A format is one file in this room and one line in `FORMATS`. Units and block sizes belong
to the format and are never guessed.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from loadgen.errors import UserError
from loadgen.quantities import text
from loadgen.records import Trace, TraceRow
from loadgen.traces import azure, mooncake
from loadgen.traces.rows import Format, Row, shown

FORMATS: dict[str, Format] = {"azure": azure.FORMAT, "mooncake": mooncake.FORMAT}
KNOWN = "azure (CSV: TIMESTAMP,ContextTokens,GeneratedTokens), mooncake (JSON lines: timestamp, input_length, ...)"

# Beyond these a file's times are more likely in another unit than real.
PLAUSIBLE_PER_S = (0.01, 1_000)


def read_trace(path: Path, format: str = "auto") -> Trace:
    """The trace in `path`, read line by line. `rows_read == len(rows) + sum(dropped.values())`.

    Rows without input or output tokens are dropped and counted (they are failures in the traces' own terms). Raises
    UserError for a file that cannot be read, is empty, is of no known format, or has a malformed row.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            name = _recognised(path) if format == "auto" else _known(format)
            return _assembled(FORMATS[name].rows(lines, path), path, name)
    except csv.Error as error:
        raise UserError(f"{path}: {error}; should be CSV") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not text; should be a trace: {KNOWN}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; should be a trace file") from error


def _known(name: str) -> str:
    if name not in FORMATS:
        raise UserError(f"{name}: no such trace format; should be auto, {', '.join(FORMATS)}")
    return name


def _recognised(path: Path) -> str:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise UserError(f"{path}: empty; should be a trace: {KNOWN}")
    for name, format in FORMATS.items():
        if format.recognises(first.strip()):
            return name
    raise UserError(f"{path}:1: {shown(first.strip())}: no known trace format; should be {KNOWN}")


def _assembled(rows: Iterator[Row], path: Path, name: str) -> Trace:
    kept: list[Row] = []
    dropped: Counter[str] = Counter()
    disorder, latest = 0, None
    for row in rows:
        if row.input_tokens == 0 or row.output_tokens == 0:
            dropped["no input tokens" if row.input_tokens == 0 else "no output tokens"] += 1
            continue
        disorder += latest is not None and row.at_ns < latest
        latest = row.at_ns if latest is None else max(latest, row.at_ns)
        kept.append(row)
    if not kept:
        reasons = ", ".join(f"{count} with {reason}" for reason, count in dropped.items())
        raise UserError(f"{path}: no row to send{f': {reasons}' if reasons else ''}; should hold at least one request")
    kept.sort(key=lambda row: row.at_ns)
    return Trace(
        source=str(path),
        format=name,
        rows=_canonical(kept, FORMATS[name].block_tokens),
        rows_read=len(kept) + dropped.total(),
        dropped=dict(dropped),
        notes=tuple(_notes(kept, disorder)),
    )


def _canonical(kept: list[Row], block_tokens: int | None) -> tuple[TraceRow, ...]:
    start_ns = kept[0].at_ns
    return tuple(
        TraceRow(
            at_s=(row.at_ns - start_ns) / 1e9,
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
            blocks=row.blocks,
            block_tokens=block_tokens if row.blocks else None,
        )
        for row in kept
    )


def _notes(kept: list[Row], disorder: int) -> Iterator[str]:
    if disorder:
        yield f"{disorder:,} of {len(kept):,} rows were out of order and have been sorted"
    span_s = (kept[-1].at_ns - kept[0].at_ns) / 1e9
    low, high = PLAUSIBLE_PER_S
    if len(kept) >= 100 and not low * span_s <= len(kept) <= high * span_s:
        yield f"{len(kept):,} rows in {span_s:g} s: check that the file's times are in the format's unit"
    batched = sum(count for count in Counter(row.at_ns for row in kept).values() if count > 1)
    if batched > len(kept) / 2:
        yield (
            f"{text(batched / len(kept), 'ratio')} of the rows share their instant with others: the trace's clock is "
            "coarse, and replaying its times sends requests in batches (tails of TTFT are then those of batches)"
        )
