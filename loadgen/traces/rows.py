"""What a format is, what its reader yields row by row, and how it complains."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from loadgen.errors import UserError


class Row(NamedTuple):
    """A row as it stands in the file; whole nanoseconds, because seconds since 1970 in a float lose digits."""

    at_ns: int
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A foreign format: whether a file's first line is of it, its rows, and the size of its prefix blocks."""

    recognises: Callable[[str], bool]
    rows: Callable[[Iterable[str], Path], Iterator[Row]]
    block_tokens: int | None = None


def malformed(path: Path, line: int, column: str, value: Any, should: str) -> UserError:
    """The complaint about one cell: file, line, column, value, what would be right."""
    return UserError(f"{path}:{line}: {column}: {shown(value)}: should be {should}")


def shown(value: Any) -> str:
    """A value as a person would look for it in the file, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
