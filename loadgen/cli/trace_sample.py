"""`loadgen trace sample`: a trace made smaller without changing what it is like."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadgen.cli.options import Finite
from loadgen.cli.trace_source import FORCED, as_asked, rows_line, span_line, target, with_source

if TYPE_CHECKING:  # the records' library is loaded when a trace is read, not for --help
    from loadgen.traces.sample import Sampled

WHOLES = {"family": "prefix families", "session": "sessions", "row": "rows"}
LARGE_RATIO = 0.1


@click.command(name="sample")
@with_source
@FORCED
@click.option("-o", "--out", type=click.Path(path_type=Path), help="File to write [default: SOURCE.sample.jsonl here].")
@click.option("--share", type=Finite(min=0, max=1, min_open=True), help="Of the rows to keep, such as 0.1.")
@click.option("--count", type=click.IntRange(min=1), help="How many rows to keep, about.")
@click.option("--window", metavar="FROM:TO", help="Keep what begins within these seconds of the trace.")
@click.option(
    "--by",
    type=click.Choice(["auto", "family", "session", "row"]),
    default="auto",
    show_default=True,
    help="What is kept or dropped as a whole; family: what shares a prefix.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--keep-rate", is_flag=True, help="Move starts together so that their rate stays what it was.")
@click.option("--overwrite", is_flag=True, help="Replace the file that is there.")
def command(  # one parameter per option
    *,
    sources: tuple[Path, ...],
    force_units: bool,
    out: Path | None,
    overwrite: bool,
    share: float | None,
    count: int | None,
    window: str | None,
    by: Any,
    seed: int,
    keep_rate: bool,
    **more: Any,
) -> None:
    """Make a trace smaller: whole sessions or prefix families (never single rows of such), or a window of time."""
    from loadgen.traces.draw import Cut
    from loadgen.traces.sample import sample

    if share is not None and count is not None:
        raise click.UsageError("--share and --count: should be one of them")
    if share is None and count is None and window is None:
        raise click.UsageError("nothing to keep: should be --share, --count or --window")
    cut = Cut(share=share, count=count, window_s=_window(window), by=by, seed=seed, keep_rate=keep_rate)
    path = target(out, sources, ".sample.jsonl", overwrite)
    found = sample(sources, path, cut, force_units=force_units, **as_asked(**more))
    for line in lines(found):
        click.echo(line)
    click.echo(f"wrote {path}")


def _window(given: str | None) -> tuple[float, float] | None:
    if given is None:
        return None
    begin, _, end = given.partition(":")
    try:
        low, high = float(begin or 0), float(end or "inf")
    except ValueError:
        low = high = 0.0
    if not 0 <= low < high:
        raise click.UsageError(f"--window {given}: should be FROM:TO in seconds, such as 600:1200")
    return low, high


def lines(found: "Sampled") -> Iterator[str]:
    """What was kept, and what that did to the reuse of prefixes."""
    header = found.header
    yield rows_line(header)
    yield span_line(header.span_s, header.rows_kept)
    yield f"{found.groups_kept:,} of {found.groups:,} {WHOLES[found.by]}; the largest has {found.largest_rows:,} rows"
    if found.shared_before is not None and found.shared_after is not None:
        yield (
            f"prompt tokens that an unlimited prefix cache finds: {found.shared_before:.1%} before, "
            f"{found.shared_after:.1%} after"
        )
    if found.by != "row" and found.groups > 1 and found.largest_rows > LARGE_RATIO * found.rows:
        yield (
            f"note: one of the {WHOLES[found.by]} holds {found.largest_rows / found.rows:.0%} of the rows: the "
            "sample is with it or without it; a --window keeps the mixture"
        )
    if found.groups_kept < found.groups and found.scale == 1:
        yield (
            "note: fewer requests use less cache: what binds here at a capacity of C tokens bound before at "
            f"{found.rows / header.rows_kept:.3g} x C"
        )
