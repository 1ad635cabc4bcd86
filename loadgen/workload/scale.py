"""A trace's tokens scaled to a smaller (or larger) model, its prefix blocks and so its reuse kept. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from loadgen.records import TraceRow

FAR = 0.1  # of the scale asked for: beyond this the user should know that blocks gave another


class Scaled(NamedTuple):
    """The rows, scaled, and what was done."""

    rows: tuple[TraceRow, ...]
    notes: tuple[str, ...]


def scaled(rows: Sequence[TraceRow], scale: float) -> Scaled:
    """Each row's lengths times `scale`, at least 1 token.

    A block of b tokens becomes one of b' = max(1, round(b * scale)); then b' / b is the scale of everything, so that
    prompts, outputs and shared prefixes keep their proportions. A prompt of k full blocks and r tokens has k * b' +
    r * b' / b tokens, rounded up: it is covered by the same ids.
    """
    sizes = sorted({row.block_tokens for row in rows if row.blocks and row.block_tokens is not None})
    blocks = {size: max(1, round(size * scale)) for size in sizes}
    real = blocks[sizes[0]] / sizes[0] if sizes else scale
    made = tuple(_row(row, blocks, real) for row in rows)
    return Scaled(made, tuple(_notes(rows, made, scale, blocks)))


def _row(row: TraceRow, blocks: dict[int, int], scale: float) -> TraceRow:
    size = row.block_tokens if row.blocks else None
    return msgspec.structs.replace(
        row,
        input_tokens=max(1, round(row.input_tokens * scale)) if size is None else _covered(row, size, blocks[size]),
        output_tokens=max(1, round(row.output_tokens * scale)),
        block_tokens=None if size is None else blocks[size],
        prefix_tokens=None if row.prefix_tokens is None else round(row.prefix_tokens * scale),
        cached_tokens=None if row.cached_tokens is None else round(row.cached_tokens * scale),
    )


def _covered(row: TraceRow, before: int, after: int) -> int:
    """As many full blocks as before; of the rest its share, at most a whole block where an id covers it."""
    full, rest = divmod(row.input_tokens, before)
    part = -(-rest * after // before)
    if full >= len(row.blocks):  # the rest has no id: it must stay below a block
        part = min(part, after - 1)
    return max(1, full * after + part)


def _notes(rows: Sequence[TraceRow], made: Sequence[TraceRow], scale: float, blocks: dict[int, int]) -> Iterator[str]:
    before = sum(row.input_tokens for row in rows), sum(row.output_tokens for row in rows)
    after = sum(row.input_tokens for row in made), sum(row.output_tokens for row in made)
    told = f"prompt tokens {before[0]:,} -> {after[0]:,}, output tokens {before[1]:,} -> {after[1]:,}"
    if not blocks:
        yield f"scale_tokens {scale:g}: {told}"
        return
    size, smaller = next(iter(blocks.items()))
    yield (
        f"scale_tokens {scale:g}: a block of {size} tokens became one of {smaller}, so the scale is "
        f"{smaller / size:.6g}; ids and thus the reused share are kept; {told}"
    )
    if abs(smaller / size - scale) > FAR * scale:
        yield f"scale_tokens {scale:g} is not what blocks of {size} tokens allow: use a multiple of 1/{size}"
