"""`loadgen trace import`: any log or public trace -> the canonical form."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loadgen.cli.trace_source import FORCED, as_asked, rows_line, span_line, target, with_source

if TYPE_CHECKING:  # the records' library is loaded when a trace is read, not for --help
    from loadgen.traces.canonical import Header
    from loadgen.traces.rows import TimeUnit


@click.command(name="import")
@with_source
@FORCED
@click.option("-o", "--out", type=click.Path(path_type=Path), help="File to write [default: SOURCE.trace.jsonl here].")
@click.option("--overwrite", is_flag=True, help="Replace the file that is there.")
def command(  # one parameter per option
    *,
    sources: tuple[Path, ...],
    out: Path | None,
    format: str,
    options: tuple[str, ...],
    mapping: str | None,
    time_unit: "TimeUnit | None",
    force_units: bool,
    overwrite: bool,
) -> None:
    """Turn any log or public trace into loadgen's own form, and say what was read, kept and dropped.

    Several sources are one trace. Text of prompts and answers is never written.
    """
    from loadgen.traces.convert import import_trace

    path = target(out, sources, ".trace.jsonl", overwrite)
    asked = as_asked(format, options, mapping, time_unit)
    header = import_trace(sources, path, force_units=force_units, **asked)
    for line in described(header):
        click.echo(line)
    click.echo(f"wrote {path}")


def described(header: "Header") -> Iterator[str]:
    """What became of the rows, how long the trace is, and its notes: a line each."""
    yield rows_line(header)
    yield span_line(header.span_s, header.rows_kept)
    if header.block_tokens:
        yield f"prefix blocks of {header.block_tokens} tokens, ids valid within {_scope(header)}"
    for note in header.notes:
        yield f"note: {note}"


def _scope(header: "Header") -> str:
    return "one session" if header.block_scope == "session" else "the whole trace"
