"""A log's records, whatever holds them: CSV, JSON lines, a JSON list, or a JSON object with a list in it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loadgen.errors import UserError
from loadgen.traces.rows import Head
from loadgen.traces.sources import document, first_object, header_cells, objects, opened
from loadgen.traces.tables import tables
from loadgen.traces.values import Place

LISTS = ("data", "result", "results", "logs", "items")  # under which services put the list they answer with
Record = Mapping[str, Any]


def records(path: Path) -> Iterator[tuple[Place, Record]]:
    """Each record with its place: the line of CSV or JSON lines, the number of an entry in a list.

    CSV and JSON lines are read as they come; a list is read whole. Raises UserError for what is none of these.
    """
    start = _start(path)
    if start.startswith("["):
        yield from _entries(path, document(path))
    elif not start.startswith("{"):
        for table in tables([path], ()):
            for line, cells in table.rows:
                yield Place(path, line), dict(zip(table.header, cells, strict=True))
    elif _is_line(start):
        for line, value in objects(path):
            yield Place(path, line), value
    else:
        yield from _entries(path, _listed(path))


def first_record(head: Head) -> Record | None:
    """The first record of a file, for `recognises`: of CSV, its header's names with empty texts. None without one."""
    text = head.text.lstrip()
    if not text.startswith(("[", "{")):
        cells = header_cells(head)
        return dict.fromkeys(cells, "") if len(cells) > 1 else None
    line = first_object(head) if text.startswith("{") else None
    if line is not None and not any(isinstance(line.get(key), list) for key in LISTS):
        return line
    begin = min((place for key in LISTS if (place := text.find(f'"{key}"')) >= 0), default=-1)
    opens = text.find("[", 0 if text.startswith("[") else max(begin, 0))
    entry = text.find("{", opens)
    if opens < 0 or entry < 0 or (text.startswith("{") and begin < 0):
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(text, entry)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def look(record: Record, path: str) -> Any:
    """What stands under a key, or under keys with dots between them; None if nothing does."""
    if path in record or "." not in path:
        return record.get(path)
    value: Any = record
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _start(path: Path) -> str:
    with opened(path) as lines:
        for line in lines:
            if line.strip():
                return line.strip()
    raise UserError(f"{path}: empty; should be a log with at least one request")


def _is_line(start: str) -> bool:
    try:
        value = json.loads(start)
    except (ValueError, RecursionError):
        return start not in {"{", "{}"} and not start.endswith(("[", "{", ",", ":"))
    return not any(isinstance(value.get(key), list) for key in LISTS)


def _listed(path: Path) -> Any:
    value = document(path)
    found = [value[key] for key in LISTS if isinstance(value, dict) and isinstance(value.get(key), list)]
    if not found:
        raise UserError(f"{path}: a JSON object without a list under {', '.join(LISTS)}; should be a log's records")
    return found[0]


def _entries(path: Path, values: Any) -> Iterator[tuple[Place, Record]]:
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise Place(path, number).wrong("entry", value, "a JSON object")
        yield Place(path, number), value
