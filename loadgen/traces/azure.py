"""Azure's LLM inference traces: CSV with TIMESTAMP, ContextTokens, GeneratedTokens.

Both published timestamp forms are read: `2023-11-16 18:17:03.9799600` (2023: seven fractional digits, no zone) and
`2024-05-10 00:00:00.009930+00:00` (2024: with a zone, and without a fraction on whole seconds). Instants without a
zone are taken as UTC; only differences matter. Source: github.com/Azure/AzurePublicDataset.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from datetime import date
from functools import lru_cache
from pathlib import Path

from loadgen.errors import UserError
from loadgen.traces.rows import Format, Row, malformed

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):?(\d\d))?"
)
STAMP_SHOULD = "a time such as 2023-11-16 18:17:03.9799600 or 2024-05-10 00:00:01+00:00"


def recognises(first_line: str) -> bool:
    """True if the file's first line is this format's header."""
    return set(COLUMNS) <= set(_header(first_line))


def rows(lines: Iterable[str], path: Path) -> Iterator[Row]:
    """The rows in the order of the file. Raises UserError at the first malformed one."""
    reader = csv.reader(lines)
    header = _header(",".join(next((cells for cells in reader if cells), [])))
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise UserError(f"{path}:1: header: no column {', '.join(missing)}; should be {','.join(COLUMNS)}")
    places = [header.index(name) for name in COLUMNS]
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(header):
            raise UserError(
                f"{path}:{reader.line_num}: {len(cells)} columns: should be {len(header)}, as in the header"
            )
        stamp, context, generated = (cells[place] for place in places)
        yield Row(
            _instant(stamp.strip(), path, reader.line_num),
            _tokens(context, path, reader.line_num, COLUMNS[1]),
            _tokens(generated, path, reader.line_num, COLUMNS[2]),
        )


def _header(line: str) -> list[str]:
    return [name.strip().strip('"') for name in line.lstrip("\ufeff").split(",")]


def _tokens(cell: str, path: Path, line: int, column: str) -> int:
    text = cell.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise malformed(path, line, column, cell, "a whole number of tokens")
    return int(text)


def _instant(cell: str, path: Path, line: int) -> int:
    match = STAMP.fullmatch(cell)
    if match is None:
        raise malformed(path, line, COLUMNS[0], cell, STAMP_SHOULD)
    day, hour, minute, second, fraction, sign, zone_hour, zone_minute = match.groups()
    try:
        days = _days(day)
    except ValueError as error:
        raise malformed(path, line, COLUMNS[0], cell, f"a date of the calendar ({error})") from error
    seconds = days * 86400 + int(hour) * 3600 + int(minute) * 60 + int(second)
    if sign:
        ahead = int(zone_hour) * 3600 + int(zone_minute) * 60
        seconds += ahead if sign == "-" else -ahead
    return seconds * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


@lru_cache(maxsize=64)
def _days(day: str) -> int:
    return date.fromisoformat(day).toordinal()


FORMAT = Format(recognises=recognises, rows=rows)
