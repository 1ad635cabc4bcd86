"""What a trace is like, in figures: lengths, arrivals, sessions, reuse of prefixes, KV cache wanted."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from loadgen.traces.arrivals import Arrivals, arrivals
from loadgen.traces.columns import NONE, Columns, Floats, collected
from loadgen.traces.read import reading
from loadgen.traces.resident import Resident, Speeds, resident
from loadgen.traces.reuse import Ints, ladder
from loadgen.traces.rows import BlockScope, TimeUnit, named

MOST_KINDS = 12


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Of values: their number, mean and quantiles (linear between neighbours)."""

    count: int
    mean: float
    p10: float
    p50: float
    p90: float
    p99: float
    max: float


class Sessions(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions as logged; sub-agents count as their own. None where the trace does not tell.

    `appended_tokens`: of each turn but a session's first, what its prompt adds to what the session had sent before.
    `shared_ratio`: prompt tokens of a session's earlier rows found again, of all prompt tokens in sessions;
    `found_ratio`: of each turn but a session's first.
    """

    count: int
    rows: int
    turns: Spread
    think_s: Spread | None
    appended_tokens: Spread | None
    shared_ratio: float | None
    found_ratio: Spread | None


class Reuse(msgspec.Struct, frozen=True, kw_only=True):
    """What prompts share, by the trace's own blocks.

    `shared_ratio`: prompt tokens that an unlimited prefix cache finds. `curve`: capacity in tokens, and the share that
    an LRU cache of that size finds, running requests and outputs left out. `distinct_tokens`: of all different blocks.
    """

    block_tokens: int
    scope: BlockScope
    distinct_tokens: int
    shared_ratio: float
    curve: tuple[tuple[int, float], ...]

    def at(self, capacity_tokens: int) -> float | None:
        """The share at a capacity of the curve."""
        return dict(self.curve).get(capacity_tokens)


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `rows_read == rows_kept + sum(dropped.values())`. `kinds`: rows of the most frequent classes.

    `read_tokens`: context that an output token reads, on average over all output tokens.
    """

    source: str
    format: str
    rows_read: int
    rows_kept: int
    dropped: dict[str, int]
    span_s: float
    input_tokens: Spread
    output_tokens: Spread
    in_per_out: float
    read_tokens: float
    arrivals: Arrivals
    resident: Resident
    sessions: Sessions | None = None
    reuse: Reuse | None = None
    kinds: dict[str, int] = {}
    notes: tuple[str, ...] = ()


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """How to look. `capacities_tokens`: of the hit curve [default: what fits the trace]; `capacity_tokens` joins them.

    `seed`: of the instants within the steps of a coarse clock.
    """

    speeds: Speeds = Speeds()
    capacities_tokens: tuple[int, ...] = ()
    capacity_tokens: int | None = None
    seed: int = 0


def describe(
    paths: Sequence[Path],
    asked: Asked | None = None,
    *,
    format: str = "auto",
    options: Mapping[str, str] | None = None,
    time_unit: TimeUnit | None = None,
    force_units: bool = False,
) -> tuple[Description, Columns]:
    """The figures of a trace of any known format, and its rows in arrays. Raises UserError as `read_trace` does."""
    asked = asked or Asked()
    account, rows = reading(paths, format=format, options=options, time_unit=time_unit)
    columns = collected(rows, account)
    if not force_units:
        account.check_units(time_unit)
    return Description(
        source=named([Path(path.name) for path in paths]),
        format=account.format.name,
        rows_read=account.rows_read,
        rows_kept=account.rows_kept,
        dropped=dict(account.dropped),
        span_s=account.span_s,
        input_tokens=spread_of(columns.input_tokens),
        output_tokens=spread_of(columns.output_tokens),
        in_per_out=float(columns.input_tokens.sum() / columns.output_tokens.sum()),
        read_tokens=_read_tokens(columns),
        arrivals=arrivals(columns.at_s, columns.time_quantum_s, asked.seed),
        resident=resident(columns, asked.speeds, asked.capacity_tokens),
        sessions=_sessions(columns),
        reuse=_reuse(columns, account.scope, asked),
        kinds=dict(sorted(columns.kinds.items(), key=lambda pair: -pair[1])[:MOST_KINDS]),
        notes=columns.notes,
    ), columns


def spread_of(values: Ints | Floats) -> Spread:
    """Of at least one value."""
    p10, p50, p90, p99 = (float(value) for value in np.percentile(values, (10, 50, 90, 99)))
    return Spread(
        count=len(values), mean=float(values.mean()), p10=p10, p50=p50, p90=p90, p99=p99, max=float(values.max())
    )


def _read_tokens(columns: Columns) -> float:
    """The i-th output token (from 0) reads the prompt and i tokens."""
    output = columns.output_tokens.astype(np.float64)
    return float((output * (columns.input_tokens + (output - 1) / 2)).sum() / output.sum())


def _reuse(columns: Columns, scope: BlockScope, asked: Asked) -> Reuse | None:
    stretches = columns.stretches
    if stretches is None:
        return None
    depths = stretches.depths()
    sizes = dict.fromkeys(asked.capacities_tokens or ladder(stretches, depths))
    if asked.capacity_tokens is not None:
        sizes |= dict.fromkeys((asked.capacity_tokens, 2 * asked.capacity_tokens))
    return Reuse(
        block_tokens=stretches.block_tokens,
        scope=scope,
        distinct_tokens=stretches.distinct_blocks * stretches.block_tokens,
        shared_ratio=stretches.shared_ratio(),
        curve=tuple((size, stretches.lru_ratio(depths, size)) for size in sorted(sizes)),
    )


def _sessions(columns: Columns) -> Sessions | None:
    inside = columns.session != NONE
    if not inside.any():
        return None
    turns = np.unique(columns.session[inside], return_counts=True)[1]
    think_s = columns.think_s[~np.isnan(columns.think_s)]
    found = _found_again(columns)
    later = inside & (columns.before != NONE)
    appended = ratio = None
    if found is not None and later.any():
        appended = spread_of((columns.input_tokens - found)[later])
        ratio = spread_of((found / columns.input_tokens)[later])
    total = int(columns.input_tokens[inside].sum())
    return Sessions(
        count=len(turns),
        rows=int(inside.sum()),
        turns=spread_of(turns),
        think_s=spread_of(think_s) if len(think_s) else None,
        appended_tokens=appended,
        shared_ratio=None if found is None else float(found[inside].sum() / total),
        found_ratio=ratio,
    )


def _found_again(columns: Columns) -> Ints | None:
    """Per row: prompt tokens of its session's earlier rows; None where the trace tells nothing."""
    if columns.stretches is not None:
        return columns.stretches.found_tokens(columns.stretches.seen(columns.session))
    if (columns.prefix_tokens == NONE).all():
        return None
    return np.where(columns.before == NONE, 0, np.clip(columns.prefix_tokens, 0, columns.input_tokens))
