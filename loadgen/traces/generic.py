"""Any CSV, JSON lines or JSON list of requests, whose keys the user names: `--map t=startTime,in=...,out=...`.

Times: dates with or without a zone, numbers since 1970 or since any start; see `when`. Seconds for `dur`. Sessions of
rows that have an end, or a duration, are linked by who waited for whom; see `chains`.
"""

from collections.abc import Iterator
from typing import cast

from loadgen.errors import UserError
from loadgen.traces.mapped import Keys, Log, mapped, parsed
from loadgen.traces.options import choice
from loadgen.traces.records import Record, look, records
from loadgen.traces.rows import Format, Head, Item, Source
from loadgen.traces.when import NS, Unit

UNIT = "of times that are numbers: s, ms, us or ns [of large numbers: since 1970, as fits; else s]"
OPTIONS = {"map": "which key is what: t=KEY,in=KEY,out=KEY, and session, end, dur (s), cached, kind, id", "unit": UNIT}


def recognises(head: Head) -> bool:
    """False: which keys to read, only the user knows; `--map` chooses this format."""
    return False


def rows(source: Source) -> Iterator[Item]:
    """The rows in the order of the file. Raises UserError at the first malformed one, and for unknown keys."""
    if "map" not in source.options:
        raise UserError("--map: missing: format generic needs to know which key is what: t=KEY,in=KEY,out=KEY")
    keys = parsed(source.options["map"])
    unit = choice(source.options, "unit", "", ("", *NS)) or None
    for path in source.paths:
        for place, record in records(path):
            _there(keys, record, f"{place.path}:{place.line}")
            break
    yield from mapped(source, Log(keys=keys, unit=cast(Unit | None, unit)))


def _there(keys: Keys, record: Record, where: str) -> None:
    """Raises UserError if the first record has not even a place for what is required."""
    for key in (*keys.t, *keys.inputs, *keys.outputs):
        if key not in record and look(record, key) is None:
            raise UserError(f"{where}: {key}: not there; should be one of {', '.join(list(record)[:20])}")


FORMAT = Format(
    name="generic",
    label="CSV with a header, JSON lines or a JSON list: --map says which key is what",
    recognises=recognises,
    rows=rows,
    options=OPTIONS,
)
