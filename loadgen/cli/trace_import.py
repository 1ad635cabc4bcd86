"""`loadgen trace import`: any log or public trace -> the canonical form."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loadgen.cli.options import pairs

if TYPE_CHECKING:  # the records' library is loaded when a trace is read, not for --help
    from loadgen.traces.canonical import Header
    from loadgen.traces.rows import TimeUnit


def _list(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    from loadgen.traces.formats import FORMATS

    for name, format in FORMATS.items():
        click.echo(f"{name}: {format.label}")
        for option, meaning in format.options.items():
            click.echo(f"    --option {option}=...  {meaning}")
    ctx.exit()


@click.command(name="import")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="File to write [default: SOURCE.trace.jsonl here].")
@click.option("--format", default="auto", show_default=True, help="What SOURCE is; auto looks into it.")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="Name the formats.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="What the format needs; see --list.")
@click.option(
    "--map", "mapping", metavar="t=KEY,in=KEY,...", help="Which key of any CSV or JSON is what: format generic."
)
@click.option(
    "--time-unit", type=click.Choice(["s", "ms", "us", "ns"]), help="Of SOURCE's times [default: the format's]."
)
@click.option("--force-units", is_flag=True, help="Take times as they are, however unlikely.")
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

    given = pairs(options, "--option") | ({"map": mapping} if mapping is not None else {})
    if mapping is not None and format == "auto":
        format = "generic"
    path = out or Path(f"{sources[0].name.split('.')[0] or 'trace'}.trace.jsonl")
    if path.exists() and not overwrite:
        raise click.UsageError(f"{path}: exists; --overwrite replaces it, -o names another file")
    header = import_trace(sources, path, format=format, options=given, time_unit=time_unit, force_units=force_units)
    for line in described(header):
        click.echo(line)
    click.echo(f"wrote {path}")


def described(header: "Header") -> Iterator[str]:
    """What became of the rows, how long the trace is, and its notes: a line each."""
    dropped = sum(header.dropped.values())
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(header.dropped.items()))
    yield (
        f"{header.source} ({header.format}): {header.rows_read:,} rows read = {header.rows_kept:,} kept + {dropped:,} "
        f"dropped{f' ({reasons})' if reasons else ''}"
    )
    rate = f", {header.rows_kept / header.span_s:.3g} requests/s" if header.span_s else ""
    yield f"{hours(header.span_s)} of trace ({header.span_s:,.3f} s){rate}"
    if header.block_tokens:
        yield f"prefix blocks of {header.block_tokens} tokens, ids valid within {_scope(header)}"
    for note in header.notes:
        yield f"note: {note}"


def hours(span_s: float) -> str:
    """`1.2 h`; below a tenth of an hour `3.4 min`."""
    return f"{span_s / 3600:.1f} h" if span_s >= 360 else f"{span_s / 60:.1f} min"


def _scope(header: "Header") -> str:
    return "one session" if header.block_scope == "session" else "the whole trace"
