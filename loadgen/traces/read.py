"""Any trace file -> the `Trace` record: seconds from its first row, in order, every row accounted for."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from loadgen.records import Trace, TraceRow
from loadgen.traces.formats import check_options, chosen
from loadgen.traces.frame import Account, Clock
from loadgen.traces.rows import Item, Row, Source, TimeUnit, named
from loadgen.traces.sources import sha256


def reading(
    paths: Sequence[Path],
    *,
    format: str = "auto",
    options: Mapping[str, str] | None = None,
    time_unit: TimeUnit | None = None,
) -> tuple[Account, Iterator[Row]]:
    """The rows of `paths` as one trace, in the order of the source, as they are read; and the account that counts them.

    The account is complete when the rows have been taken. Raises UserError as `read_trace` does, but for its units:
    `account.check_units()` does that at the end.
    """
    account, items, unit = items_of(paths, format=format, options=options, time_unit=time_unit)
    return account, account.kept(items, unit)


def items_of(
    paths: Sequence[Path],
    *,
    format: str = "auto",
    options: Mapping[str, str] | None = None,
    time_unit: TimeUnit | None = None,
) -> tuple[Account, Iterator[Item], TimeUnit | None]:
    """What the format's reader gives, as it is read, an account that has not seen it, and the unit for `kept`."""
    found = chosen(paths, format)
    given = dict(options or {})
    check_options(found, given)
    if time_unit is not None and "unit" in found.options:  # the reader finds the unit out itself, and is told instead
        given["unit"], time_unit = time_unit, None
    return Account(named(paths), found), found.rows(Source(paths=tuple(paths), options=given)), time_unit


def read_trace(path: Path, format: str = "auto", options: Mapping[str, str] | None = None) -> Trace:
    """The trace in `path`, whole, in memory. `rows_read == len(rows) + sum(dropped.values())`.

    Rows without input or output tokens are dropped and counted (they are failures in the traces' own terms). Raises
    UserError for a file that cannot be read, is empty, is of no known format, has a malformed row, or times that must
    be in another unit.
    """
    account, rows = reading([path], format=format, options=options)
    found, kept = account.format, list(rows)
    account.check_units()
    kept.sort(key=lambda row: row.at_ns)
    clock = Clock()
    for row in kept:
        clock.see(row.at_ns)
    return Trace(
        source=str(path),
        format=found.name,
        rows=_canonical(kept, account.block_tokens or found.block_tokens),
        rows_read=account.rows_read,
        dropped=dict(account.dropped),
        notes=account.told(clock),
        block_scope=account.block_scope or found.block_scope,
        time_quantum_s=account.time_quantum_s or found.time_quantum_s or clock.quantum_s,
        sha256=sha256([path]),
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
            id=row.id,
            session=row.session,
            turn=row.turn,
            after=row.after,
            think_s=row.think_s,
            prefix_tokens=row.prefix_tokens,
            cached_tokens=row.cached_tokens,
            kind=row.kind,
            duration_s=row.duration_s,
        )
        for row in kept
    )
