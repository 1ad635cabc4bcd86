"""What is found wrong in a trace, grouped and bounded: the first few of each kind, and how many there are."""

from dataclasses import dataclass, field
from typing import Literal

SHOWN = 3

Kind = Literal[
    "units",
    "lengths",
    "blocks against lengths",
    "chained blocks",
    "ids",
    "turns",
    "parents",
    "zero tokens",
    "other rows that are dropped",
    "order",
    "unlikely rate",
    "parents that are not there",
    "contexts that shrink",
]
NOTES: tuple[Kind, ...] = (
    "zero tokens",
    "other rows that are dropped",
    "order",
    "unlikely rate",
    "parents that are not there",
    "contexts that shrink",
)  # what can be right; all else cannot


@dataclass(slots=True)
class Finding:
    """Of one kind: how many, and lines that tell the first few: row, key, value, what would be right."""

    kind: Kind
    count: int = 0
    first: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> bool:
        """True for what cannot be right."""
        return self.kind not in NOTES


@dataclass(slots=True)
class Findings:
    """All kinds, in the order in which they came up."""

    kinds: dict[Kind, Finding] = field(default_factory=dict)

    def add(self, kind: Kind, line: str, count: int = 1) -> None:
        """One more, or several that one line tells."""
        found = self.kinds.setdefault(kind, Finding(kind))
        found.count += count
        if len(found.first) < SHOWN:
            found.first.append(line)

    @property
    def wrong(self) -> int:
        """How many of what cannot be right."""
        return sum(found.count for found in self.kinds.values() if found.wrong)
