"""The report for a terminal: the answer first, then the evidence. Every colour stands beside a sign and a word."""

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from loadgen.quantities import Unit, text
from loadgen.records import Check, Estimate, Figure, Finding, Report
from loadgen.report import maps, rows, words

STYLE: dict[words.Mood, str] = {"good": "green", "bad": "red", "even": "dim", "open": "yellow"}


def render(report: Report, console: Console, *, detail: bool = False) -> None:
    """Prints `report` on `console`, at the console's width. `detail` adds every quantity, interval and fact."""
    for part in PARTS:
        part(report, console, detail)


NARROWEST = 20  # columns; a terminal that leaves less gets no indent


class _Indented:
    """A renderable moved right, its lines without trailing blanks: pipes and golden files stay clean."""

    def __init__(self, content: RenderableType, indent: int) -> None:
        self.content = content
        self.indent = indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        indent = self.indent if options.max_width - self.indent >= NARROWEST else 0
        narrowed = options.update_width(options.max_width - indent)
        for line in console.render_lines(self.content, narrowed, pad=False):
            segments = list(line)
            while segments and not segments[-1].text.strip():
                segments.pop()
            if segments:
                last = segments[-1]
                yield Segment(" " * indent)
                yield from segments[:-1]
                yield Segment(last.text.rstrip(), last.style)
            yield Segment.line()


def _print(console: Console, content: RenderableType, indent: int = 0) -> None:
    console.print(_Indented(content, indent), highlight=False, end="")


def _text(content: str, style: str = "") -> Text:
    return Text(words.plain(content), style=style)


def _heading(console: Console, title: str, aside: str = "") -> None:
    console.print()
    _print(console, Text.assemble((title, "bold"), "  " if aside else "", (words.plain(aside), "dim")))


def _table(*, header: bool = True) -> Table:
    return Table(box=None, show_header=header, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))


def _marked(console: Console, mark: Text | str, content: Text, indent: int = 2) -> None:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row(mark, content)
    _print(console, grid, indent)


def _title(report: Report, console: Console, detail: bool) -> None:
    if simulated := words.simulated(report):
        _print(console, _text(simulated, "bold yellow"))
    _print(console, _text(report.title, "bold"))
    _print(console, _text(f"{report.scenario}, {report.started_at}, {words.blocks_line(report)}", "dim"))


def _verdicts(report: Report, console: Console, detail: bool) -> None:
    console.print()
    if report.test is None or not report.headlines:
        _print(console, Text(words.NOT_JUDGED if report.test else words.NOT_COMPARED, style="bold"))
    for headline in report.headlines:
        sign, mood = words.HEADLINE[headline.verdict]
        answer = (f"{sign} {headline.verdict.upper()}" if report.test else "", f"bold {STYLE[mood]}")
        _print(console, Text.assemble((f"{words.headline_title(report, headline) + ': ':<13}", "bold"), answer))
        _print(console, _text(headline.sentence), 2)
    if report.warnings:
        many = len(report.warnings)
        _print(console, _text(f"{many} warning{'s' if many > 1 else ''}: see below.", "yellow"))


def _stages(report: Report, console: Console, detail: bool) -> None:
    for stage in rows.stages(report):
        shown = rows.stage_rows(report, stage, detail=detail)
        _heading(console, words.ROLE[stage.role], rows.stage_caption(report, stage))
        if not shown:
            _print(console, Text("nothing was measured", style="dim"), 2)
            continue
        _print(console, _differences(report, shown) if report.test else _summaries(report, shown), 2)
        for note in rows.stage_notes(shown, detail=detail):
            _print(console, _text(note, "dim"), 2)


def _differences(report: Report, shown: Sequence[rows.Row]) -> Table:
    table = _table()
    table.add_column("")
    table.add_column(_text(report.base), justify="right", overflow="fold")
    table.add_column(_text(report.test or ""), justify="right", overflow="fold")
    table.add_column(rows.ratio_heading(shown), no_wrap=True)
    table.add_column("difference", no_wrap=True)
    for row in shown:
        word = Text("")
        if row.verdict is not None:
            sign, name, mood = words.DIFFERENCE[row.verdict]
            word = Text(f"{sign} {name}", style=STYLE[mood])
        table.add_row(row.label, row.base, row.test, row.ratio, word)
    return table


def _maps(report: Report, console: Console, detail: bool) -> None:
    for found in report.maps:
        aside = f"{report.test} / {report.base}; rows: requests in flight, columns: prompt tokens"
        _heading(console, maps.title(found), aside)
        table = _table()
        for name in ("", *(f"{context:,}" for context in found.contexts)):
            table.add_column(name, justify="right", no_wrap=True)
        for row in maps.written(found):
            table.add_row(*row)
        _print(console, table, 2)
        _print(console, _text(maps.marks(found), "dim"), 2)
        lines = _table(header=False)
        for line in found.break_even:
            lines.add_row(f"{line.concurrency:,} in flight", _text(line.said))
        _print(console, lines, 2)


def _summaries(report: Report, shown: Sequence[rows.Row]) -> Table:
    table = _table()
    table.add_column("")
    table.add_column(_text(report.base), justify="right")
    for row in shown:
        table.add_row(row.label, row.base)
    return table


def _decomposition(report: Report, console: Console, detail: bool) -> None:
    found = report.decomposition
    if found is None:
        return
    _heading(console, "Decode step, one stream", "time between tokens = intercept + slope × context")
    table = _table()
    table.add_column("")
    for name in (report.base, report.test or ""):
        table.add_column(_text(name), justify="right", overflow="fold")
    table.add_column("")
    table.add_row(
        "intercept",
        _center(found.base.intercept_s, "s", detail),
        _center(found.test.intercept_s, "s", detail),
        f"difference {words.with_interval(found.intercept_difference_s, 's')}",
    )
    table.add_row(
        "slope",
        _center(found.base.slope_s_per_token, "s_per_token", detail),
        _center(found.test.slope_s_per_token, "s_per_token", detail),
        f"ratio {words.ratio_interval(found.slope_ratio)}",
    )
    _print(console, table, 2)
    share = words.share_sentence(found.share_above)
    _print(console, _text(f"Break-even: {found.break_even}.{share}"), 2)
    for warning in found.warnings:
        _marked(console, "!", _text(warning, "yellow"))


def _center(estimate: Estimate, unit: Unit, detail: bool) -> str:
    return words.with_interval(estimate, unit) if detail else text(estimate.center, unit)


def _causes(report: Report, console: Console, detail: bool) -> None:
    if not report.findings:
        return
    _heading(console, "Why: four causes")
    for finding in report.findings:
        _finding(finding, console)


def _finding(finding: Finding, console: Console) -> None:
    sign, mood = words.FINDING[finding.verdict]
    style = f"bold {STYLE[mood]}"
    claim = Text.assemble((f"{finding.cause.capitalize()}: {finding.verdict}. ", style), words.plain(finding.claim))
    _marked(console, Text(sign, style=style), claim)
    for figure in finding.evidence:
        _print(console, _text(f"{figure.label}: {figure.value}{_source(figure)}", "dim"), 6)
    if finding.advice:
        _marked(console, "→", _text(finding.advice), 4)


def _source(figure: Figure) -> str:
    return f"  [{figure.source}]" if figure.source else ""


def _checks(console: Console, checks: Iterable[Check]) -> None:
    table = _table(header=False)
    for check in checks:
        sign, word, mood = words.check_sign(check)
        table.add_row(Text(f"{sign} {word}", style=STYLE[mood]), _text(check.name), _text(check.figure, "dim"))
    _print(console, table, 2)


def _checklist(report: Report, console: Console, detail: bool) -> None:
    if report.checklist:
        _heading(console, "Checklist of a fair comparison")
        _checks(console, report.checklist)


def _innocence(report: Report, console: Console, detail: bool) -> None:
    if report.virtual_time:
        _heading(console, "Was the client innocent?")
        _print(console, Text(words.NO_CLIENT), 2)
    elif report.innocence:
        _heading(console, "Was the client innocent?")
        _checks(console, report.innocence)


def _traffic(report: Report, console: Console, detail: bool) -> None:
    if report.traffic:
        _heading(console, words.TRAFFIC)
        _checks(console, report.traffic)


def _facts(report: Report, console: Console, detail: bool) -> None:
    if not report.arms:
        return
    _heading(console, words.servers(report), "≠ marks what differs" if len(report.arms) > 1 else "")
    table = _table()
    table.add_column("")
    table.add_column("")
    for arm in report.arms:
        table.add_column(_text(arm.name), overflow="fold")
    table.add_column("")
    for fact in rows.facts(report, detail=detail):
        mark = "≠" if fact.differs else ""
        table.add_row(mark, fact.label, *(_text(value) for value in fact.values), fact.extra)
    _print(console, table, 2)
    if detail:
        for line in rows.server_warnings(report):
            _print(console, _text(f"log, {line}", "dim"), 2)


def _lines(title: str, style: str, read: Callable[[Report], Iterable[str]]) -> "Part":
    def part(report: Report, console: Console, detail: bool) -> None:
        lines = list(read(report))
        if lines:
            _heading(console, title)
        for line in lines:
            _marked(console, Text("!", style=style), _text(line, style))

    return part


def _reproduce(report: Report, console: Console, detail: bool) -> None:
    _heading(console, "Reproduce")
    _print(console, _text(report.command), 2)
    _print(console, _text(f"loadgen report {report.path}", "dim"), 2)
    if report.virtual_time:
        _print(console, _text(words.simulated(report), "bold yellow"), 2)
    if detail:
        for note in report.plan_notes:
            _print(console, _text(note, "dim"), 2)
        versions = ", ".join(f"{name} {version}" for name, version in sorted(report.packages.items()))
        _print(console, _text(f"loadgen {report.loadgen}{', ' if versions else ''}{versions}", "dim"), 2)


Part = Callable[[Report, Console, bool], None]
PARTS: tuple[Part, ...] = (
    _title,
    _verdicts,
    _stages,
    _maps,
    _decomposition,
    _causes,
    _checklist,
    _facts,
    _lines("Unintended differences between the arms", "yellow", lambda report: report.unintended),
    _lines("Failed requests", "yellow", rows.failed_requests),
    _traffic,
    _innocence,
    _lines("Warnings", "yellow", lambda report: report.warnings),
    _reproduce,
)
