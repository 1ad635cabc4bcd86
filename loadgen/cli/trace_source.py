"""What every verb of `loadgen trace` is told about its source."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loadgen.cli.options import pairs

if TYPE_CHECKING:  # the records' library is loaded when a trace is read, not for --help
    from loadgen.traces.canonical import Header
    from loadgen.traces.describe import Description
    from loadgen.traces.rows import TimeUnit

    Counted = Header | Description

PAGE = b"<!doctype html>"

F = TypeVar("F", bound=Callable[..., Any])


def _list(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    from loadgen.traces.formats import FORMATS

    for name, format in FORMATS.items():
        click.echo(f"{name}: {format.label}")
        for option, meaning in format.options.items():
            click.echo(f"    --option {option}=...  {meaning}")
    ctx.exit()


SOURCE = (
    click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=click.Path(path_type=Path)),
    click.option("--format", default="auto", show_default=True, help="What SOURCE is; auto looks into it."),
    click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="Name the formats."),
    click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="What the format needs; see --list."),
    click.option(
        "--map", "mapping", metavar="t=KEY,in=KEY,...", help="Which key of any CSV or JSON is what: format generic."
    ),
    click.option(
        "--time-unit", type=click.Choice(["s", "ms", "us", "ns"]), help="Of SOURCE's times [default: the format's]."
    ),
)
FORCED = click.option("--force-units", is_flag=True, help="Take times as they are, however unlikely.")


def with_source(function: F) -> F:
    """Adds SOURCE and its options, but for --force-units (`FORCED`)."""
    for option in reversed(SOURCE):
        function = option(function)
    return function


def as_asked(
    format: str, options: tuple[str, ...], mapping: str | None, time_unit: "TimeUnit | None"
) -> dict[str, Any]:
    """The options as `traces.read.reading` takes them. Raises UserError for an option that is no NAME=VALUE."""
    given = pairs(options, "--option") | ({"map": mapping} if mapping is not None else {})
    if mapping is not None and format == "auto":
        format = "generic"
    return {"format": format, "options": given, "time_unit": time_unit}


def target(out: Path | None, sources: tuple[Path, ...], ending: str, overwrite: bool) -> Path:
    """The file to write: `out`, or one here named after the source. Raises click.UsageError if it may not be."""
    path = out or Path(f"{sources[0].name.split('.')[0] or 'trace'}{ending}")
    if path.exists() and not path.is_file():
        raise click.UsageError(f"{path}: is a folder or a device; should be a file")
    if path.exists() and not overwrite:
        raise click.UsageError(f"{path}: exists; --overwrite replaces it, -o names another file")
    _not_a_source(path, sources)
    return path


def page(path: Path, sources: tuple[Path, ...]) -> Path:
    """`path`, where a page may be written. Raises click.UsageError if something else than a page is there."""
    _not_a_source(path, sources)
    if path.exists() and not _is_page(path):
        raise click.UsageError(f"--html {path}: exists and is no page; should be another file")
    return path


def _is_page(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(PAGE)).lower() in (PAGE, b"")


def _not_a_source(path: Path, sources: tuple[Path, ...]) -> None:
    if any(source.exists() and path.exists() and source.samefile(path) for source in sources):
        raise click.UsageError(f"{path}: is the source; should be another file")


def rows_line(of: "Counted") -> str:
    """What became of the rows."""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(of.dropped.items()))
    return (
        f"{of.source} ({of.format}): {of.rows_read:,} rows read = {of.rows_kept:,} kept + {sum(of.dropped.values()):,} "
        f"dropped{f' ({reasons})' if reasons else ''}"
    )


def span_line(span_s: float, rows: int) -> str:
    """How long a trace is, and its rate."""
    rate = f", {rows / span_s:.3g} requests/s" if span_s else ""
    return f"{hours(span_s)} of trace ({span_s:,.3f} s){rate}"


def hours(span_s: float) -> str:
    """`1.2 h`; below a tenth of an hour `3.4 min`."""
    return f"{span_s / 3600:.1f} h" if span_s >= 360 else f"{span_s / 60:.1f} min"
