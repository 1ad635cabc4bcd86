"""`loadgen trace describe`: what a trace is like, as text, JSON or a page."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadgen.cli.options import Finite
from loadgen.cli.trace_source import FORCED, as_asked, page, rows_line, span_line, with_source
from loadgen.quantities import text

if TYPE_CHECKING:  # the records' library is loaded when a trace is read, not for --help
    from loadgen.traces.columns import Columns
    from loadgen.traces.describe import Description
    from loadgen.traces.resident import Held

BAR = 32  # signs of the longest bar
LEVELS = ("mean", "p10", "p50", "p90", "p99", "max")


@click.command(name="describe")
@with_source
@FORCED
@click.option("--capacity", type=click.IntRange(min=1), metavar="TOKENS", help="KV-cache capacity: does it bind?")
@click.option("--capacities", metavar="TOKENS,...", help="Of the hit curve [default: what fits the trace].")
@click.option("--prefill-speed", type=Finite(min=1e-3), default=10_000.0, show_default=True,
              help="Prefill tokens per second to assume.")  # fmt: skip
@click.option("--decode-gap", type=Finite(min=0, min_open=True, max=86_400), default=0.020, show_default=True,
              help="Seconds per output token to assume.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Of instants within the steps of a coarse clock.")  # fmt: skip
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with figures.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(*, sources: tuple[Path, ...], force_units: bool, html: Path | None, as_json: bool, **more: Any) -> None:
    """Say what a trace is like: lengths, arrivals, sessions, reuse of prefixes, KV cache wanted."""
    import msgspec

    from loadgen.traces.describe import describe
    from loadgen.traces.outlook import outlook

    if html is not None:
        page(html, sources)
    began_s = time.perf_counter()
    of, columns = describe(sources, _asked(more), force_units=force_units, **_source(more))
    took_s = time.perf_counter() - began_s
    said = outlook(of)
    if html is not None:
        _write_page(html, of, columns, said)
    if as_json:
        record = {**msgspec.to_builtins(of), "outlook": said}
        click.echo(msgspec.json.format(msgspec.json.encode(record), indent=2).decode())
        return
    for line in lines(of, columns, said):
        click.echo(line)
    click.echo(f"\ndescribed in {took_s:.1f} s{f'; wrote {html}' if html is not None else ''}")


def _source(more: dict[str, Any]) -> dict[str, Any]:
    return as_asked(more["format"], more["options"], more["mapping"], more["time_unit"])


def _asked(more: dict[str, Any]) -> Any:
    from loadgen.traces.describe import Asked
    from loadgen.traces.resident import Speeds

    return Asked(
        speeds=Speeds(prefill_tokens_per_s=more["prefill_speed"], decode_gap_s=more["decode_gap"]),
        capacities_tokens=_capacities(more["capacities"]),
        capacity_tokens=more["capacity"],
        seed=more["seed"],
    )


def _capacities(given: str | None) -> tuple[int, ...]:
    words = given.split(",") if given is not None else []
    bad = [word for word in words if not word.strip().replace("_", "").isdecimal() or int(word) < 1]
    if bad:
        raise click.BadParameter(f"{bad[0]}: should be tokens, such as --capacities 500000,1000000")
    return tuple(sorted({int(word) for word in words}))


def _write_page(path: Path, of: "Description", columns: "Columns", said: Sequence[str]) -> None:
    from loadgen.report.trace_page import render
    from loadgen.report.write import write_file

    write_file(path, render(of, columns, said).encode())


def lines(of: "Description", columns: "Columns", said: Sequence[str]) -> Iterator[str]:
    """The text: figures, a histogram of lengths, what it says of quantization, notes."""
    yield rows_line(of)
    yield span_line(of.span_s, of.rows_kept)
    yield from ("", *_figures(of))
    yield from ("", *_histograms(columns))
    yield from ("", *said)
    for note in of.notes:
        yield f"note: {note}"


def _figures(of: "Description") -> Iterator[str]:
    yield f"{'':24}" + "".join(f"{level:>10}" for level in LEVELS)
    rows: list[tuple[str, Any]] = [("prompt tokens", of.input_tokens), ("output tokens", of.output_tokens)]
    if of.sessions is not None:
        rows += [("turns of a session", of.sessions.turns), ("tokens appended a turn", of.sessions.appended_tokens)]
        rows += [("think time, s", of.sessions.think_s)]
    for name, spread in rows:
        if spread is not None:
            yield f"{name:24}" + "".join(f"{text(getattr(spread, level), 'count'):>10}" for level in LEVELS)
    yield f"{of.in_per_out:.3g} prompt tokens for each output token"
    yield from _arrivals(of)
    yield from _shared(of)
    yield from _resident(of)


def _arrivals(of: "Description") -> Iterator[str]:
    found = of.arrivals
    if found.gap_cv is not None:
        yield (
            f"arrivals: CV of gaps {found.gap_cv:.3g}; index of dispersion "
            f"{text(found.dispersion_1s, 'count')} at 1 s, "
            f"{text(found.dispersion_10s, 'count')} at 10 s"
        )
    if found.time_quantum_s is not None:
        yield (
            f"  spread over the clock's steps of {found.time_quantum_s:g} s: CV {text(found.spread_gap_cv, 'count')}; "
            f"{text(found.spread_dispersion_1s, 'count')} at 1 s, {text(found.spread_dispersion_10s, 'count')} at 10 s"
        )
    if found.peak_ratio is not None and found.idle_ratio is not None:
        yield f"  fullest 10 s: {found.peak_ratio:.3g} times the mean; {found.idle_ratio:.0%} of 10 s bins are empty"


def _shared(of: "Description") -> Iterator[str]:
    if of.sessions is not None:
        share = of.sessions.shared_ratio
        again = "" if share is None else f"; {share:.1%} of their prompt tokens were in the session's earlier prompts"
        if of.sessions.found_ratio is not None:
            again += f", of a later turn's p10 {of.sessions.found_ratio.p10:.1%}, p50 {of.sessions.found_ratio.p50:.1%}"
        yield f"sessions: {of.sessions.count:,} with {of.sessions.rows:,} requests{again}"
    if of.reuse is not None:
        yield (
            f"prefixes: {of.reuse.shared_ratio:.1%} of prompt tokens with an unlimited cache, by blocks of "
            f"{of.reuse.block_tokens} tokens; with an LRU cache of"
        )
        for size, ratio in of.reuse.curve:
            yield f"  {size:>13,} tokens {ratio:>6.1%}  {'█' * round(BAR * ratio)}".rstrip()


def _resident(of: "Description") -> Iterator[str]:
    speeds = of.resident.assumed
    yield (
        f"KV cache at {speeds.prefill_tokens_per_s:,.0f} prefill tokens/s and {speeds.decode_gap_s * 1e3:g} ms per "
        "output token, without queueing and sharing:"
    )
    yield f"  tokens held         {_held(of.resident.tokens)}"
    yield f"  requests in flight  {_held(of.resident.in_flight)}"


def _held(held: "Held") -> str:
    return f"mean {held.mean:,.0f}, p50 {held.p50:,.0f}, p99 {held.p99:,.0f}, max {held.max:,.0f}"


def _histograms(columns: "Columns") -> Iterator[str]:
    from loadgen.traces.shapes import doublings

    for name, values in (("prompt", columns.input_tokens), ("output", columns.output_tokens)):
        bins = doublings(values)
        most = max(one.rows for one in bins)
        yield f"{name} tokens"
        for one in bins:
            bar = "█" * round(BAR * one.rows / most) or ("▏" if one.rows else "")
            yield f"  {one.low:>9,} to {one.high - 1:>9,}  {one.rows:>9,}  {bar}".rstrip()
