"""A trace's rows made to fit a scenario: its window, its longest prompt, its longest output. Pure.

What is left out or shortened is counted, and the counts become notes of the plan.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from loadgen.errors import UserError
from loadgen.records import Trace, TraceRow
from loadgen.workload.model import Workload


class Fitted(NamedTuple):
    """The rows that may be sent, the instant of the trace that is a replay's zero, and what was done to them."""

    rows: tuple[TraceRow, ...]
    origin_s: float
    notes: tuple[str, ...]


def fitted(trace: Trace, workload: Workload) -> Fitted:
    """The rows of `trace` inside the workload's window and bounds. Raises UserError if none is left."""
    window = workload.trace.window if workload.trace else None
    inside = [row for row in trace.rows if window is None or window[0] <= row.at_s < window[1]]
    notes = list(_read(trace, window, len(inside)))
    bound, cap = workload.max_input_tokens, workload.max_output_tokens
    rows: Sequence[TraceRow] = inside
    if bound is not None:
        above = sum(row.input_tokens > bound for row in inside)
        if workload.fit == "drop":
            rows = [row for row in inside if row.input_tokens <= bound]
            notes += [f"trace: dropped {above:,} of {len(inside):,} rows: input_tokens above {bound:,}"] * bool(above)
        else:
            rows = [_cut(row, bound) for row in inside]
            notes += [f"trace: cut {above:,} of {len(inside):,} prompts to {bound:,} tokens"] * bool(above)
    if not rows:
        raise UserError(f"{trace.source}: no row is left to send: {'; '.join(notes)}; widen window or max_input_tokens")
    above = 0 if cap is None else sum(row.output_tokens > cap for row in rows)
    if cap is not None and above:
        rows = [_capped(row, cap) for row in rows]
        notes.append(f"trace: cut {above:,} of {len(rows):,} outputs to {cap:,} tokens")
    return Fitted(tuple(rows), window[0] if window else rows[0].at_s, tuple(notes))


def _read(trace: Trace, window: tuple[float, float] | None, inside: int) -> Iterator[str]:
    yield f"trace: {trace.rows_read:,} {trace.format} rows read"
    for reason, count in trace.dropped.items():
        yield f"trace: dropped {count:,} of {trace.rows_read:,} rows: {reason}"
    if window is not None:
        yield f"trace: {inside:,} rows lie in the window {window[0]:g} s to {window[1]:g} s"
    for note in trace.notes:
        yield f"trace: {note}"


def _cut(row: TraceRow, bound: int) -> TraceRow:
    if row.input_tokens <= bound:
        return row
    blocks = row.blocks[: -(-bound // row.block_tokens)] if row.block_tokens else ()
    return TraceRow(
        at_s=row.at_s,
        input_tokens=bound,
        output_tokens=row.output_tokens,
        blocks=blocks,
        block_tokens=row.block_tokens,
    )


def _capped(row: TraceRow, cap: int) -> TraceRow:
    if row.output_tokens <= cap:
        return row
    return TraceRow(
        at_s=row.at_s,
        input_tokens=row.input_tokens,
        output_tokens=cap,
        blocks=row.blocks,
        block_tokens=row.block_tokens,
    )
