"""The sections of the HTML report: each takes the Report and gives one element, or None where it has nothing to say."""

from collections.abc import Callable, Iterable, Sequence
from xml.etree.ElementTree import Element

from loadgen.quantities import QUANTITIES, Unit, text
from loadgen.records import Check, Estimate, Finding, Headline, Report, StageSpec
from loadgen.report import rows, words
from loadgen.report.element import Content, element

KEY_FIGURES = ("output_tokens_per_s", "ttft_p50_s", "itl_p50_s")


def badge(sign: str, word: str, mood: words.Mood) -> Element:
    """A sign and a word; the colour only repeats them."""
    return element("span", element("span", sign, aria_hidden="true", class_="sign"), f" {word}", class_=f"badge {mood}")


def listed(lines: Iterable[str], **attributes: str) -> Element:
    """A bulleted list."""
    return element("ul", *(element("li", line) for line in lines), **attributes)


def table(head: Sequence[Content], body: Iterable[Element], class_: str = "") -> Element:
    """A table that scrolls sideways by itself where it is too wide."""
    header = element("thead", element("tr", *(element("th", cell, scope="col") for cell in head)))
    return element("div", element("table", header, element("tbody", *body), class_=class_), class_="scroll")


def verdict(report: Report) -> Element:
    """The answer: one card for each headline."""
    if report.test is None or not report.headlines:
        said = words.NOT_JUDGED if report.test else words.NOT_COMPARED
        cards = [element("p", said, class_="card open")] + [
            element("p", f"{words.headline_title(report, headline)}: {headline.sentence}", class_="card open")
            for headline in report.headlines
        ]
    else:
        cards = [_card(report, headline) for headline in report.headlines]
    notices = []
    if report.warnings:
        notices.append(element("ul", *(element("li", line) for line in report.warnings), class_="notice"))
    return element("div", element("div", *cards, class_="cards"), *notices)


def _figure(written: str) -> tuple[Content, ...]:
    center, bracket, interval = written.partition(" (")
    return (f"{center} ", element("span", f"({interval}", class_="interval")) if bracket else (written,)


def _card(report: Report, headline: Headline) -> Element:
    sign, mood = words.HEADLINE[headline.verdict]
    figures = [
        element("div", element("dt", words.label(d.quantity)), element("dd", *_figure(words.ratio_interval(d.ratio))))
        for quantity in KEY_FIGURES
        for d in report.differences
        if d.stage == headline.stage and d.quantity == quantity
    ]
    return element(
        "article",
        element("p", words.headline_title(report, headline), class_="role"),
        element("h3", badge(sign, headline.verdict, mood)),
        element("p", headline.sentence),
        element("dl", *figures) if figures else None,
        class_=f"card {mood}",
    )


def differences(report: Report, stage: StageSpec) -> Element:
    """One stage's table, its notes, and every other quantity behind a fold."""
    shown = rows.stage_rows(report, stage)
    everything = rows.stage_rows(report, stage, detail=True)
    body: list[Content] = [element("p", "Nothing was measured.")]
    if everything:
        summary = element("summary", f"All {len(everything)} quantities, with intervals")
        notes = _notes(rows.stage_notes(everything, detail=True))
        whole = element("details", summary, _rows(report, everything), notes)
        body = [_rows(report, shown) if shown else None, _notes(rows.stage_notes(shown)), whole]
    caption = element("p", rows.stage_caption(report, stage), class_="caption")
    return element("div", element("h3", words.ROLE[stage.role]), caption, *body)


def _notes(notes: Sequence[str]) -> Element | None:
    return listed(notes, class_="notes") if notes else None


def _rows(report: Report, shown: Sequence[rows.Row]) -> Element:
    if report.test is None:
        return table(
            ["", report.base],
            (element("tr", _named(row), element("td", *_figure(row.base))) for row in shown),
            "numbers",
        )
    head = ["", report.base, report.test, rows.ratio_heading(shown), "difference"]
    return table(head, (_difference(report, row) for row in shown), "numbers stacked")


def _named(row: rows.Row) -> Element:
    meaning = QUANTITIES[row.quantity].sentence if row.quantity in QUANTITIES else row.label
    return element("th", row.label, scope="row", title=meaning)


def _difference(report: Report, row: rows.Row) -> Element:
    said = None
    if row.verdict is not None:
        sign, word, mood = words.DIFFERENCE[row.verdict]
        said = badge(sign, word, mood)
    return element(
        "tr",
        _named(row),
        element("td", *_figure(row.base), data_arm=report.base),
        element("td", *_figure(row.test), data_arm=report.test or ""),
        element("td", *_figure(row.ratio), class_="ratio"),
        element("td", said, class_="verdict"),
    )


def decode_step(report: Report) -> Element | None:
    """The fit in figures, beside the chart of it."""
    found = report.decomposition
    if found is None:
        return None

    def row(name: str, base: Estimate, test: Estimate, unit: Unit, compared: str) -> Element:
        cells = (words.with_interval(base, unit), words.with_interval(test, unit), compared)
        return element("tr", element("th", name, scope="row"), *(element("td", *_figure(cell)) for cell in cells))

    base, test = found.base, found.test
    apart = f"difference {words.with_interval(found.intercept_difference_s, 's')}"
    slopes = f"ratio {words.ratio_interval(found.slope_ratio)}"
    return element(
        "div",
        element("p", f"Break-even: {found.break_even}.{words.share_sentence(found.share_above)}"),
        table(
            ["", base.arm, test.arm, "compared"],
            (
                row("intercept", base.intercept_s, test.intercept_s, "s", apart),
                row("slope", base.slope_s_per_token, test.slope_s_per_token, "s_per_token", slopes),
            ),
            "numbers",
        ),
        _notes(found.warnings),
    )


def causes(report: Report) -> Element | None:
    """The four causes, each with claim, evidence and advice."""
    if not report.findings:
        return None
    return element("div", *(_cause(finding) for finding in report.findings), class_="causes")


def _cause(finding: Finding) -> Element:
    sign, mood = words.FINDING[finding.verdict]
    name, _, meaning = words.CAUSE[finding.cause].partition(": ")
    evidence = [
        element(
            "div",
            element("dt", figure.label),
            element("dd", figure.value, element("span", f" {figure.source}", class_="source")),
        )
        for figure in finding.evidence
    ]
    return element(
        "article",
        element("h3", f"{name} ", badge(sign, finding.verdict, mood)),
        element("p", meaning, class_="caption"),
        element("p", finding.claim),
        element("dl", *evidence) if evidence else None,
        element("p", f"→ {finding.advice}", class_="advice") if finding.advice else None,
        class_="cause",
    )


def checks(found: Sequence[Check]) -> Element | None:
    """Checks with their figures."""
    if not found:
        return None
    return element("ul", *(_check(check) for check in found), class_="checks")


def _check(check: Check) -> Element:
    return element(
        "li",
        badge(*words.check_sign(check)),
        element("span", check.name, class_="name"),
        element("span", check.figure, class_="figure"),
    )


def client(report: Report) -> Element | None:
    """Whether the client was on time; in virtual time there was none."""
    return element("p", words.NO_CLIENT) if report.virtual_time else checks(report.innocence)


def arms(report: Report) -> Element | None:
    """Facts of both arms side by side; what differs is marked."""
    if not report.arms:
        return None

    def row(fact: rows.Fact) -> Element:
        mark = element("span", "≠ ", title="the arms differ", class_="sign") if fact.differs else None
        extra = element("span", f" {fact.extra}", class_="source") if fact.extra else None
        cells = [element("td", value) for value in fact.values]
        if extra is not None:
            cells[-1].append(extra)
        name = element("th", mark, fact.label, scope="row")
        return element("tr", name, *cells, class_="differs" if fact.differs else "same")

    head = ["", *(arm.name for arm in report.arms)]
    said = rows.server_warnings(report)
    return element(
        "div",
        table(head, (row(fact) for fact in rows.facts(report, detail=True)), "facts"),
        element("h3", "What the servers logged") if said else None,
        listed(said, class_="log") if said else None,
    )


def lines(read: Callable[[Report], Sequence[str]]) -> Callable[[Report], Element | None]:
    """A section that is a list of what `read` finds."""

    def section(report: Report) -> Element | None:
        found = read(report)
        return listed(found, class_="notice") if found else None

    return section


def reproduce(report: Report) -> Element:
    """The command, the scenario's text, versions and the machine."""
    host = report.client_host
    machine = host and ", ".join(
        part for part in (host.cpu, host.cores and f"{host.cores} cores", _memory(host.memory_bytes), host.os) if part
    )
    versions = ", ".join(f"{name} {version}" for name, version in sorted(report.packages.items()))
    pairs = (
        ("run directory", report.path),
        ("blocks", words.blocks_line(report)),
        ("client", "none" if report.virtual_time else machine or "unknown"),
        ("versions", f"loadgen {report.loadgen}{', ' if versions else ''}{versions}"),
        *(("plan", note) for note in report.plan_notes),
    )
    return element(
        "div",
        element("pre", element("code", f"{report.command}\nloadgen report {report.path}")),
        element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in pairs)),
        element("details", element("summary", f"Scenario {report.scenario}"), element("pre", report.scenario_text)),
    )


def _memory(memory_bytes: int | None) -> str | None:
    return None if memory_bytes is None else text(memory_bytes, "bytes")
