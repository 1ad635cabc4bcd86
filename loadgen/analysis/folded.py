"""What is said of each cell of a grid, told once: a report of twenty cells is read like one of two stages. Pure."""

import re
from collections.abc import Collection, Iterable, Sequence

from loadgen.analysis.wording import listed
from loadgen.records import Check

NUMBER = re.compile(r"\d[\d.,]*")
NAMED = 4  # cells that are named; of more, the number


def lines(found: Iterable[str], cells: Collection[str]) -> tuple[str, ...]:
    """Of lines "CELL: ..." that differ in cells and numbers alone the first, with the names of the others."""
    groups: dict[str, list[str]] = {}
    for line in found:
        cell, _, rest = line.partition(": ")
        groups.setdefault(NUMBER.sub("#", rest) if cell in cells else line, []).append(line)
    return tuple(
        group[0] if len(group) == 1 else f"{group[0]} (and likewise in {_cells(group[1:])})"
        for group in groups.values()
    )


def _cells(found: Sequence[str]) -> str:
    names = [line.partition(": ")[0] for line in found]
    return listed(names) if len(names) <= NAMED else f"{len(names)} more cells of the grid"


def checks(found: Iterable[Check], cells: Collection[str]) -> tuple[Check, ...]:
    """Of checks named "CELL: ..." one for all cells that passed alike; one that failed is shown with its figure."""
    groups: dict[tuple[str, bool | None], list[Check]] = {}
    for check in found:
        cell, _, rest = check.name.partition(": ")
        groups.setdefault((f"grid: {rest}" if cell in cells else check.name, check.passed), []).append(check)
    return tuple(_together(name, group) for (name, _), group in groups.items())


def _together(name: str, group: Sequence[Check]) -> Check:
    first = group[0]
    if name == first.name:
        return first
    return Check(name=name, passed=first.passed, figure=f"{_first(group)}: {first.figure}")


def _first(group: Sequence[Check]) -> str:
    name = group[0].name.partition(": ")[0]
    return name if len(group) == 1 else f"{len(group)} cells, such as {name}"
