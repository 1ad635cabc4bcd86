"""Outcomes -> docs/accuracy.md: what was asked, the figures of each seed, and what missed its target."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from loadgen.analysis.headlines import FAMILIES
from planted import break_even, causes, effects, equals
from planted.shares import Share, clustered, share

Outcomes = Mapping[int, Sequence[dict[str, Any]]]  # by seed
Misses = list[str]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def asked(number: int, part: ModuleType) -> list[str]:
    """A part's heading and what it asks, from its own words."""
    title, _, text = (part.__doc__ or "").strip().partition("\n")
    return [f"## {number}. {title.rstrip('.')}", "", *text.strip().splitlines(), ""]


def _judged(name: str, seed: int, found: Share, low: float, high: float) -> tuple[str, list[str]]:
    word = found.judged(low, high)
    line = f"seed {seed}: {name}: {found}, {word}" if word != "met" else ""
    return word, [line] if line else []


def equals_section(outcomes: Outcomes) -> tuple[list[str], Misses]:
    """A/A."""
    misses: Misses = []
    lines = asked(1, equals)
    whole = []
    for seed, cases in outcomes.items():
        rows = clustered([[row[2] for row in one["rows"]] for one in cases])
        heads = share(any(one["claims"]) for one in cases)
        words = [_judged("A/A " + name, seed, found, 0, 0.05) for name, found in (("rows", rows), ("headlines", heads))]
        misses += [line for _, more in words for line in more]
        whole.append(
            [str(seed), str(len(cases)), f"{rows.total:,}", str(rows), str(heads), "; ".join(w for w, _ in words)]
        )
    head = ("seed", "comparisons", "rows", "rows that differ", "experiments with a false headline", "target")
    lines += table(head, whole)
    lines += ["By quantity, over all stages:", ""]
    names = sorted({row[1] for cases in outcomes.values() for one in cases for row in one["rows"]})
    per = []
    for name in names:
        cells = [name]
        for seed, cases in outcomes.items():
            found = clustered([[row[2] for row in one["rows"] if row[1] == name] for one in cases])
            misses += _judged(f"A/A {name}", seed, found, 0, 0.05)[1]
            cells.append(str(found))
        per.append(cells)
    lines += table(("quantity", *(f"seed {seed}" for seed in outcomes)), per)
    return lines + _by_trait(outcomes, "Rows that differ, by what the comparison is like:", 2), misses


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


def effects_section(outcomes: Outcomes) -> tuple[list[str], Misses]:
    """Power."""
    misses: Misses = []
    lines = asked(2, effects)
    rows = []
    for seed, cases in outcomes.items():
        for size in effects.EFFECTS:
            held = [one["rows"] for one in cases if one["size"] == size]
            rows.append([str(seed), f"{size:.0%}", str(len(held)), *(str(_rows(held, place)) for place in (2, 3, 4))])
        everything = [one["rows"] for one in cases]
        covered = _rows(everything, 4)
        word, more = _judged("intervals that cover the truth", seed, covered, 0.93, 0.97)
        misses += more
        wrong = _rows(everything, 3)
        rows.append([str(seed), "all", str(len(cases)), str(_rows(everything, 2)), str(wrong), f"{covered}: {word}"])
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
    lines += table(("quantity", "seed", *(f"{size:.0%}" for size in effects.EFFECTS)), power)
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
    return lines + table(("stage", *(f"seed {seed}" for seed in outcomes)), cover), misses


def _rows(held: Sequence[Sequence[Any]], place: int) -> Share:
    return clustered([[row[place] for row in rows] for rows in held])


def causes_section(outcomes: Outcomes) -> tuple[list[str], Misses]:
    """The four causes."""
    misses: Misses = []
    lines = asked(3, causes)
    rows = []
    for cause in causes.CAUSES:
        for truth in ("matters", "slight", "absent", "inseparable"):
            for seed, cases in outcomes.items():
                found = [one["found"][cause] for one in cases if one["truth"][cause] == truth]
                if not found:
                    continue
                held = share(verdict == "holds" for verdict in found)
                word = ""
                if truth in ("matters", "absent"):
                    bounds = (0.95, 1.0) if truth == "matters" else (0.0, 0.05)
                    word, more = _judged(f"{cause}, {truth}: found", seed, held, *bounds)
                    misses += more
                denied = sum(verdict == "does not hold" for verdict in found)
                rest = len(found) - denied - round(held.value * len(found))
                rows.append([cause, truth, str(seed), str(len(found)), str(held), str(denied), str(rest), word])
    head = ("cause", "truth", "seed", "cases", "found", "denied", "left open", "target")
    return lines + table(head, rows), misses


def break_even_section(outcomes: Outcomes) -> tuple[list[str], Misses]:
    """The planted 7,010 tokens."""
    misses: Misses = []
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
            word, more = _judged(f"break-even, {setting}: covered", seed, covered, 0.95, 1.0)
            misses += more
            if setting == "steady":
                misses += _judged(f"break-even, {setting}: within 10 %", seed, near, 0.95, 1.0)[1]
            rows.append(
                [
                    *(setting, str(seed), str(len(found)), f"{middle:,.0f} ({middle / truth - 1:+.1%})", str(near)),
                    *(f"{covered}: {word}", f"±{float(np.median(widths)):,.0f}"),
                ]
            )
    head = ("setting", "seed", "runs", "median found", "within 10 %", "interval covers", "median half-width")
    return lines + table(head, rows), misses


SECTIONS: dict[str, Callable[[Outcomes], tuple[list[str], Misses]]] = {
    "aa": equals_section,
    "power": effects_section,
    "causes": causes_section,
    "break-even": break_even_section,
}
