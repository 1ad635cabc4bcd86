"""`loadgen trace validate`: what cannot be right in a trace."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadgen.cli.trace_source import FORCED, as_asked, with_source
from loadgen.errors import UserError

if TYPE_CHECKING:  # the records' library is loaded when a trace is read, not for --help
    from loadgen.traces.validate import Validation


@click.command(name="validate")
@with_source
@FORCED
def command(*, sources: tuple[Path, ...], force_units: bool, **more: Any) -> int:
    """Say, row by row, what cannot be right in a trace; notes tell what can be right but is worth a look.

    Exit codes: 0 nothing is wrong, 1 something is, 2 the trace cannot be read to its end.
    """
    from loadgen.traces.validate import validate

    found = validate(sources, force_units=force_units, **as_asked(**more))
    for line in lines(found):
        click.echo(line)
    if found.stopped is not None:
        raise UserError(*found.stopped.splitlines())
    return 1 if found.findings.wrong else 0


def lines(found: "Validation") -> Iterator[str]:
    """What was read, then each kind of finding with its first few rows, what is wrong before what is worth a look."""
    account = found.account
    read = f"{account.rows_read:,} rows read = {account.rows_kept:,} kept + {account.dropped.total():,} dropped"
    yield f"{account.source} ({account.format.name}): {read}"
    for finding in sorted(found.findings.kinds.values(), key=lambda one: not one.wrong):
        yield f"{'wrong' if finding.wrong else 'note'}: {finding.kind}: {finding.count:,}"
        for line in finding.first:
            yield f"  {line}"
        if finding.count > len(finding.first):
            yield f"  ... and {finding.count - len(finding.first):,} more"
    if found.stopped is None and not found.findings.wrong:
        yield "nothing is wrong"
