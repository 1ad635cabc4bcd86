"""Any trace, however long -> a canonical trace file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from loadgen.errors import UserError
from loadgen.traces.canonical import VERSION, Header
from loadgen.traces.frame import Account, Clock
from loadgen.traces.read import reading
from loadgen.traces.rows import TimeUnit, named
from loadgen.traces.sources import sha256
from loadgen.traces.write import write_trace


def import_trace(
    paths: Sequence[Path],
    out: Path,
    *,
    format: str = "auto",
    options: Mapping[str, str] | None = None,
    time_unit: TimeUnit | None = None,
    force_units: bool = False,
) -> Header:
    """Writes the canonical trace of `paths` to `out`, whole or not at all, in constant memory; gives its header.

    `time_unit`: of the numbers in the file, where it is not the format's. `force_units`: take times as they are even
    if nobody would send at such a rate. Raises UserError as `read_trace` does, ExperimentError if the disk refuses.
    """
    if any(path.exists() and out.exists() and path.samefile(out) for path in paths):
        raise UserError(f"{out}: is the source; should be another file")
    account, rows = reading(paths, format=format, options=options, time_unit=time_unit)
    digest = sha256(paths)

    def header(clock: Clock) -> Header:
        if not force_units:
            account.check_units(time_unit)
        return header_of(account, clock, source=named([Path(path.name) for path in paths]), digest=digest)

    return write_trace(rows, out, header)


def header_of(account: Account, clock: Clock, *, source: str, digest: str | None = None) -> Header:
    """The header of a trace of all rows that were kept."""
    format = account.format
    block_tokens = account.block_tokens or format.block_tokens
    return Header(
        loadgen_trace=VERSION,
        source=source,
        source_sha256=digest,
        format=format.name,
        rows_read=account.rows_read,
        rows_kept=account.rows_kept,
        dropped=dict(account.dropped),
        span_s=account.span_s,
        block_tokens=block_tokens,
        block_scope=(account.block_scope or format.block_scope) if block_tokens else None,
        time_quantum_s=account.time_quantum_s or format.time_quantum_s or clock.quantum_s,
        tokenizer=account.tokenizer,
        notes=account.told(clock),
    )
