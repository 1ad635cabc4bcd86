"""Outcomes -> docs/accuracy.md: what was asked, the figures of each seed, and what missed its target."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from loadgen.analysis.headlines import FAMILIES
from planted import break_even, causes, effects, equals, over_http
from planted.shares import Share, Target, clustered, share

Outcomes = Mapping[int, Sequence[dict[str, Any]]]  # by seed
Targets = list[Target]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def asked(number: int, part: ModuleType) -> list[str]:
    """A part's heading and what it asks, from its own words."""
    title, _, text = (part.__doc__ or "").strip().partition("\n")
    return [f"## {number}. {title.rstrip('.')}", "", *text.strip().splitlines(), ""]


def equals_section(outcomes: Outcomes) -> tuple[list[str], Targets]:
    """A/A."""
    targets: Targets = []
    lines = asked(1, equals)
    whole = []
    for seed, cases in outcomes.items():
        rows = clustered([[row[2] for row in one["rows"]] for one in cases])
        heads = share(any(one["claims"]) for one in cases)
        targets.append(Target(name="equals: rows that differ", seed=seed, found=rows, low=0, high=0.05))
        targets.append(
            Target(name="equals: experiments with a false headline", seed=seed, found=heads, low=0, high=0.05)
        )
        whole.append([str(seed), str(len(cases)), f"{rows.total:,}", str(rows), str(heads)])
    head = ("seed", "comparisons", "rows", "rows that differ", "experiments with a false headline")
    lines += table(head, whole)
    lines += ["By quantity, over all stages:", ""]
    names = sorted({row[1] for cases in outcomes.values() for one in cases for row in one["rows"]})
    per = []
    for name in names:
        cells = [name]
        for seed, cases in outcomes.items():
            found = clustered([[row[2] for row in one["rows"] if row[1] == name] for one in cases])
            targets.append(Target(name=f"equals: {name}", seed=seed, found=found, low=0, high=0.05, minor=True))
            cells.append(str(found))
        per.append(cells)
    lines += table(("quantity", *(f"seed {seed}" for seed in outcomes)), per)
    return lines + _by_trait(outcomes, "Rows that differ, by what the comparison is like:", 2), targets


def _by_trait(outcomes: Outcomes, title: str, place: int) -> list[str]:
    traits = {(k, v) for cases in outcomes.values() for one in cases for k, v in one["traits"].items()}
    rows = [
        [
            f"{name}: {value}",
            *(
                str(clustered([[row[place] for row in one["rows"]] for one in cases if one["traits"][name] == value]))
                for cases in outcomes.values()
            ),
        ]
        for name, value in sorted(traits)
    ]
    return [title, "", *table(("comparisons", *(f"seed {seed}" for seed in outcomes)), rows)]


def effects_section(outcomes: Outcomes) -> tuple[list[str], Targets]:
    """Power."""
    targets: Targets = []
    lines = asked(2, effects)
    rows = []
    for seed, cases in outcomes.items():
        for size in effects.EFFECTS:
            held = [one["rows"] for one in cases if one["size"] == size]
            rows.append(
                [str(seed), f"{100 * size:.0f} %", str(len(held)), *(str(_rows(held, place)) for place in (2, 3, 4))]
            )
        everything = [one["rows"] for one in cases]
        covered = _rows(everything, 4)
        targets.append(Target(name="effects: intervals that cover", seed=seed, found=covered, low=0.93, high=0.97))
        wrong = _rows(everything, 3)
        rows.append([str(seed), "all", str(len(cases)), str(_rows(everything, 2)), str(wrong), str(covered)])
    lines += table(("seed", "effect", "comparisons", "rows that show it", "wrong sign", "intervals that cover"), rows)
    lines += [
        "What the headlines look at, share that shows the effect (closed loops; an open loop's rate is given):",
        "",
    ]
    wanted = [
        (stage, q) for stage, role in (("one-stream", "one_stream"), ("saturated", "saturated")) for q in FAMILIES[role]
    ]
    power = []
    for stage, quantity in wanted:
        for seed, cases in outcomes.items():
            held = [[(one["size"], row) for row in one["rows"] if tuple(row[:2]) == (stage, quantity)] for one in cases]
            cells = [
                str(share(row[2] for rows in held for size, row in rows if size == effect))
                for effect in effects.EFFECTS
            ]
            power.append([f"{stage}, {quantity}", str(seed), *cells])
    lines += table(("quantity", "seed", *(f"{100 * size:.0f} %" for size in effects.EFFECTS)), power)
    lines += _by_trait(outcomes, "Intervals that cover the truth, by what the comparison is like:", 4)
    stages = ("one-stream", "saturated", "open")
    cover = [
        [
            stage,
            *(
                str(clustered([[r[4] for r in one["rows"] if r[0] == stage] for one in cases]))
                for cases in outcomes.values()
            ),
        ]
        for stage in stages
    ]
    return lines + table(("stage", *(f"seed {seed}" for seed in outcomes)), cover), targets


def _rows(held: Sequence[Sequence[Any]], place: int) -> Share:
    return clustered([[row[place] for row in rows] for rows in held])


def causes_section(outcomes: Outcomes) -> tuple[list[str], Targets]:
    """The four causes."""
    targets: Targets = []
    lines = asked(3, causes)
    rows = []
    for cause in causes.CAUSES:
        for truth in ("matters", "slight", "absent", "inseparable"):
            for seed, cases in outcomes.items():
                found = [one["found"][cause] for one in cases if one["truth"][cause] == truth]
                if not found:
                    continue
                held = share(verdict == "holds" for verdict in found)
                if truth in ("matters", "absent"):
                    bounds = (0.95, 1.0) if truth == "matters" else (0.0, 0.05)
                    name = (
                        f"{cause}: {'found where it matters' if truth == 'matters' else 'claimed where it is absent'}"
                    )
                    targets.append(Target(name=name, seed=seed, found=held, low=bounds[0], high=bounds[1]))
                denied = sum(verdict == "does not hold" for verdict in found)
                rest = len(found) - denied - round(held.value * len(found))
                rows.append([cause, truth, str(seed), str(len(found)), str(held), str(denied), str(rest)])
    head = ("cause", "truth", "seed", "cases", "found", "denied", "left open")
    return lines + table(head, rows), targets


def break_even_section(outcomes: Outcomes) -> tuple[list[str], Targets]:
    """The planted 7,010 tokens."""
    targets: Targets = []
    lines = asked(4, break_even)
    rows = []
    for setting in break_even.SETTINGS:
        for seed, cases in outcomes.items():
            found = [one[setting] for one in cases]
            truth = found[0]["truth"]
            centers = np.array([one["center"] for one in found], dtype=float)
            middle = float(np.median(centers))
            near = share(abs(center / truth - 1) <= 0.1 for center in centers)
            covered = share(one["lo"] is not None and one["lo"] <= truth <= one["hi"] for one in found)
            widths = [(one["hi"] - one["lo"]) / 2 for one in found if one["lo"] is not None]
            name = f"break-even, {setting}: "
            targets.append(Target(name=name + "interval covers", seed=seed, found=covered, low=0.95, high=1))
            if setting == "steady":
                targets.append(Target(name=name + "within 10 %", seed=seed, found=near, low=0.95, high=1))
            rows.append(
                [
                    *(
                        setting,
                        str(seed),
                        str(len(found)),
                        f"{middle:,.0f} ({100 * (middle / truth - 1):+.1f} %)",
                        str(near),
                    ),
                    *(str(covered), f"±{float(np.median(widths)):,.0f}"),
                ]
            )
    head = ("setting", "seed", "runs", "median found", "within 10 %", "interval covers", "median half-width")
    return lines + table(head, rows), targets


def http_section(outcomes: Outcomes) -> tuple[list[str], Targets]:
    """Verdicts over HTTP beside those of virtual time."""
    rows = []
    for seed, cases in outcomes.items():
        for one in cases:
            cause = one["cause"]
            said = [one[where]["findings"][cause] for where in ("virtual", "http")]
            figures = [
                f"{_times(one['virtual'][name])} / {_times(one['http'][name])}"
                for name in ("throughput", "itl", "ttft")
            ]
            rows.append([one["name"], str(seed), f"{cause}: {one['planted']}", *said, *figures])
    head = ("planted", "seed", "truth", "virtual time", "over HTTP", "throughput", "one-stream ITL", "one-stream TTFT")
    note = (
        "Ratios test / base: virtual time / over HTTP. *cannot tell*, *not observable* over HTTP: the client was late."
    )
    return [*asked(5, over_http), *table(head, rows), note, ""], []


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}×"


def summary(targets: Sequence[Target]) -> list[str]:
    """Every target with the figure of each seed, and what is outside."""
    main = dict.fromkeys((one.name, one.asked) for one in targets if not one.minor)
    seeds = dict.fromkeys(one.seed for one in targets)
    rows = [[name, asked, *(f"{one.found}, {one.word}" for one in targets if one.name == name)] for name, asked in main]
    out = [one for one in targets if one.word != "met"]
    minor = sum(one.minor for one in targets)
    lines = table(("what", "target", *(f"seed {seed}" for seed in seeds)), rows)
    lines += ["*missed*: the whole interval of the share lies outside. *not told apart*: the share does, its interval"]
    lines += ["reaches in; where a true rate is 5 %, half of such shares lie above it.", ""]
    if minor:
        outside = [
            f"{one.name.removeprefix('equals: ')} (seed {one.seed}) {one.found}, {one.word}" for one in out if one.minor
        ]
        lines += [f"Of the {minor} shares of single quantities in section 1, outside their target:"]
        lines += [f"{'; '.join(outside) or 'none'}.", ""]
    return lines


SECTIONS: dict[str, Callable[[Outcomes], tuple[list[str], Targets]]] = {
    "aa": equals_section,
    "power": effects_section,
    "causes": causes_section,
    "break-even": break_even_section,
    "http": http_section,
}
