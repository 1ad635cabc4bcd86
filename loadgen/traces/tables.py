"""CSV files by column name, whatever the order of their columns."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loadgen.errors import UserError
from loadgen.traces.rows import malformed
from loadgen.traces.sources import opened, readable

if TYPE_CHECKING:
    import _csv

MOST_DIGITS = 9  # of a token count


@dataclass(frozen=True, slots=True)
class Table:
    """A CSV file: its header, and its rows with the line each one ends on."""

    path: Path
    header: tuple[str, ...]
    rows: Iterator[tuple[int, list[str]]]

    def place(self, column: str) -> int:
        """The index of a column in each row. Raises ValueError if there is none: see `has`."""
        return self.header.index(column)

    def has(self, column: str) -> bool:
        """True if the header names the column."""
        return column in self.header


def tables(paths: Sequence[Path], required: Sequence[str]) -> Iterator[Table]:
    """Each file in turn: to be read whole before the next. Blank lines are passed over.

    Raises UserError if the header lacks a required column, and at a row with more or fewer cells than the header.
    """
    for path in paths:
        with opened(path) as lines:
            reader = csv.reader(lines)
            header = tuple(cell.strip() for cell in next((cells for cells in reader if cells), []))
            missing = [name for name in required if name not in header]
            if missing:
                raise UserError(f"{path}:1: header: no column {', '.join(missing)}; should be {','.join(required)}")
            yield Table(path, header, _checked(reader, path, len(header)))


def _checked(reader: "_csv.Reader", path: Path, width: int) -> Iterator[tuple[int, list[str]]]:
    with readable(path):
        for cells in reader:
            if len(cells) == width:
                yield reader.line_num, cells
            elif cells:
                raise UserError(f"{path}:{reader.line_num}: {len(cells)} columns: should be {width}, as in the header")


def tokens(cell: str, path: Path, line: int, column: str) -> int:
    """A whole number of tokens from a cell. Raises UserError that names the cell."""
    text = cell.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise malformed(path, line, column, cell, "a whole number of tokens")
    return int(text)


def seconds(cell: str, path: Path, line: int, column: str) -> float:
    """A number of seconds, finite and not below zero, from a cell. Raises UserError that names the cell."""
    try:
        value = float(cell)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise malformed(path, line, column, cell, "seconds, 0 or more")
    return value
