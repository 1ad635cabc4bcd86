"""A trace made smaller, and still like it: whole sessions or prefix families, or a window of time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from loadgen.errors import ExperimentError
from loadgen.traces.canonical import Header
from loadgen.traces.columns import Columns, Floats, collected
from loadgen.traces.convert import header_of
from loadgen.traces.draw import By, Cut, Drawn, drawn, shared_ratio
from loadgen.traces.frame import Account, Clock
from loadgen.traces.read import reading
from loadgen.traces.rows import Row, TimeUnit, named
from loadgen.traces.sources import sha256
from loadgen.traces.ties import Ties
from loadgen.traces.write import write_trace

LEFT_OUT = "left out of the sample"


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `shared_before`, `shared_after`: what an unlimited prefix cache finds; None without prefixes.

    `rows` in `groups` (families, sessions or single ones) to draw from; `largest_rows`: of the largest; `scale`: of
    starts.
    """

    header: Header
    by: By
    rows: int
    groups: int
    groups_kept: int
    largest_rows: int
    scale: float
    shared_before: float | None
    shared_after: float | None


def sample(
    paths: Sequence[Path],
    out: Path,
    cut: Cut,
    *,
    format: str = "auto",
    options: Mapping[str, str] | None = None,
    time_unit: TimeUnit | None = None,
    force_units: bool = False,
) -> Sampled:
    """Writes a part of a trace of any known format to `out`, as a canonical trace. Reads the source twice.

    Raises UserError as `read_trace` does, and as `drawn` does; ExperimentError if the disk refuses, or the source
    changes meanwhile.
    """

    def read() -> tuple[Account, Iterator[Row]]:
        return reading(paths, format=format, options=options, time_unit=time_unit)

    account, rows = read()
    ties = Ties()
    columns = collected(ties.seen(rows), account)
    if not force_units:
        account.check_units(time_unit)
    found = drawn(columns, ties.links()[columns.order], cut)
    again, rows = read()
    digest = sha256(paths)

    def header(clock: Clock) -> Header:
        whole = header_of(again, clock, source=named([Path(path.name) for path in paths]), digest=digest)
        return _cut(whole, columns, found, _told(cut, found))

    written = write_trace(_picked(rows, columns, found), out, header)
    everything = np.ones_like(found.kept)
    return Sampled(
        header=written,
        by=found.by,
        rows=found.rows,
        groups=found.groups,
        groups_kept=found.groups_kept,
        largest_rows=found.largest_rows,
        scale=found.scale,
        shared_before=shared_ratio(columns, everything),
        shared_after=shared_ratio(columns, found.kept),
    )


def _picked(rows: Iterable[Row], columns: Columns, found: Drawn) -> Iterator[Row]:
    """The rows that were drawn, at their new times. `rows` come as they came the first time."""
    kept, moves_ns = np.empty_like(found.kept), np.empty_like(columns.order)
    kept[columns.order], moves_ns[columns.order] = found.kept, np.rint(_moves_s(found) * 1e9).astype(np.int64)
    count = 0
    for row, keep, by_ns in zip(rows, kept.tolist(), moves_ns.tolist(), strict=False):
        count += 1
        if keep:
            yield msgspec.structs.replace(row, at_ns=row.at_ns + by_ns) if by_ns else row
    if count != len(kept) or next(iter(rows), None) is not None:
        raise ExperimentError("the source changed while it was read; it should be a file that nobody writes to")


def _moves_s(found: Drawn) -> Floats:
    """What is linked moves as one."""
    return found.start_s * (found.scale - 1)


def _cut(whole: Header, columns: Columns, found: Drawn, note: str) -> Header:
    """The header of what was drawn."""
    at_s = (columns.at_s + _moves_s(found))[found.kept]
    kept = len(at_s)
    left_out = {LEFT_OUT: whole.rows_kept - kept} if whole.rows_kept > kept else {}
    step_s = columns.time_quantum_s
    return msgspec.structs.replace(
        whole,
        rows_kept=kept,
        dropped={**whole.dropped, **left_out},
        span_s=round(float(at_s.max() - at_s.min()), 9),
        time_quantum_s=None if step_s is None else step_s * found.scale,
        notes=(*columns.notes, note),
    )


def _told(cut: Cut, found: Drawn) -> str:
    whole = {"family": "prefix families", "session": "sessions", "row": "rows"}.get(found.by, found.by)
    said = f"a sample: {found.groups_kept:,} of {found.groups:,} {whole}, seed {cut.seed}"
    if cut.window_s is not None:
        said += f", of what begins from {cut.window_s[0]:g} s to {cut.window_s[1]:g} s"
    if cut.keep_rate:
        return f"{said}; starts moved together by {found.scale:.4g}, so that their rate is what it was"
    return f"{said}; times as they were"
