"""`loadgen trace anonymise`: a trace that may be given away."""

from pathlib import Path
from typing import Any

import click

from loadgen.cli.options import Finite
from loadgen.cli.trace_source import FORCED, as_asked, rows_line, target, with_source


def _no_seed(ctx: click.Context, _: click.Parameter, given: str | None) -> None:
    if given is not None:
        raise click.UsageError(
            "--seed: ids are drawn from the system's randomness and forgotten; whoever knew a seed could undo them"
        )


@click.command(name="anonymise")
@with_source
@FORCED
@click.option("-o", "--out", type=click.Path(path_type=Path), help="File to write [default: SOURCE.anonymous.jsonl].")
@click.option(
    "--round-tokens", type=click.IntRange(1, 1_000_000), default=1, metavar="N", help="Lengths to multiples of N."
)
@click.option(
    "--jitter", type=Finite(0, 31_622_400), default=0.0, metavar="SECONDS", help="Move times by up to so much."
)
@click.option(
    "--k", type=click.IntRange(min=1), default=5, show_default=True, help="Merge classes that fewer sessions have."
)
@click.option(
    "--classes",
    "kinds",
    type=click.Choice(["number", "keep", "drop"]),
    default="number",
    show_default=True,
    help="Names of classes and models.",
)
@click.option("--overwrite", is_flag=True, help="Replace the file that is there.")
@click.option("--seed", hidden=True, expose_value=False, callback=_no_seed)
def command(  # one parameter per option
    *,
    sources: tuple[Path, ...],
    force_units: bool,
    out: Path | None,
    overwrite: bool,
    round_tokens: int,
    jitter: float,
    k: int,
    kinds: Any,
    **more: Any,
) -> None:
    """Make a trace that may be given away: no text, no names, no dates, ids that no other export repeats."""
    from loadgen.traces.anonymise import Blurred, anonymise

    path = target(out, sources, ".anonymous.jsonl", overwrite)
    asked = Blurred(round_tokens=round_tokens, jitter_s=jitter, k=k, kinds=kinds)
    found = anonymise(sources, path, asked, force_units=force_units, **as_asked(**more))
    click.echo(rows_line(found.header))
    click.echo(
        f"replaced: {found.sessions:,} sessions, {found.blocks:,} prefix blocks, {found.kinds:,} classes, "
        f"{found.kinds_merged:,} of them rare and merged"
    )
    if round_tokens == 1 or not jitter:
        click.echo(
            "note: exact lengths and times match this trace with any other log of the same traffic; --round-tokens 16 "
            "--jitter 5 blur them"
        )
    click.echo(f"wrote {path}")
