"""The canonical trace: JSON lines, a header and then a line per request in order of time; see docs/traces.md.

Every foreign format is turned into it; it is a format among the others for whoever reads a trace.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from loadgen.errors import UserError
from loadgen.traces.rows import About, BlockScope, Format, Head, Item, Row, Source
from loadgen.traces.sources import objects
from loadgen.traces.values import Place, blocks, covering, name, number, tokens

VERSION = 1
HEADER_BEGINS = re.compile(r'\{\s*"loadgen_trace"\s*:')
MARK = "loadgen_trace"
KEYS = frozenset(
    ("t", "in", "out", "blocks", "id", "session", "turn", "after", "think", "prefix", "cached", "class", "dur")
)


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line. `rows_read == rows_kept + sum(dropped.values())`, and `rows_kept` lines follow."""

    loadgen_trace: int
    source: str
    format: str
    source_sha256: str | None = None
    rows_read: int
    rows_kept: int
    dropped: dict[str, int] = {}
    span_s: float = 0.0
    block_tokens: int | None = None
    block_scope: BlockScope | None = None
    time_quantum_s: float | None = None
    tokenizer: str | None = None
    notes: tuple[str, ...] = ()


_HEADER = msgspec.json.Encoder()


def header_line(header: Header) -> bytes:
    """The first line, with its end."""
    return _HEADER.encode(header) + b"\n"


def body(row: Row) -> bytes:
    """A row's line after its time, with its end: `time_text` goes before it."""
    line = b',"in":%d,"out":%d' % (row.input_tokens, row.output_tokens)
    more = _rest(row)
    return line + b"," + _HEADER.encode(more)[1:] + b"\n" if more else line + b"}\n"


def time_text(after_ns: int) -> bytes:
    """The beginning of a row's line: `{"t":` and exact decimal seconds."""
    seconds, rest_ns = divmod(after_ns, 1_000_000_000)
    return b'{"t":%d' % seconds if rest_ns == 0 else b'{"t":%d.%s' % (seconds, (b"%09d" % rest_ns).rstrip(b"0"))


def _rest(row: Row) -> dict[str, Any]:
    values: dict[str, Any] = {
        "blocks": row.blocks or None,
        "id": row.id,
        "session": row.session,
        "turn": row.turn,
        "after": row.after or None,
        "think": row.think_s,
        "prefix": row.prefix_tokens,
        "cached": row.cached_tokens,
        "class": row.kind,
        "dur": row.duration_s,
    }
    return {key: value for key, value in values.items() if value is not None}


def recognises(head: Head) -> bool:
    """True if the file begins with a canonical trace's header, of whatever version."""
    return bool(head.lines) and HEADER_BEGINS.match(head.lines[0]) is not None


def read_header(path: Path) -> Header:
    """The header alone. Raises UserError if the file does not begin with one that this program reads."""
    for _, value in objects(path):
        return _header(value, path)
    raise UserError(f"{path}: empty; should begin with a header of a loadgen trace")


def _header(value: dict[str, Any], path: Path) -> Header:
    version = value.get(MARK)
    if version != VERSION:
        raise UserError(f"{path}:1: {MARK}: {version!r}: should be {VERSION}, the version that this program reads")
    try:
        header = msgspec.convert(value, Header)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}:1: header: {error}; should be that of a loadgen trace") from error
    if header.block_tokens is not None and header.block_tokens < 1:
        raise UserError(f"{path}:1: block_tokens: {header.block_tokens}: should be at least 1")
    if header.rows_read != header.rows_kept + sum(header.dropped.values()):
        raise UserError(f"{path}:1: rows_read: {header.rows_read}: should be rows_kept and all dropped together")
    return header


def rows(source: Source) -> Iterator[Item]:
    """The rows in the order of the file. Raises UserError at the first malformed one, and where rows are missing."""
    for path in source.paths:
        lines = objects(path)
        header = _header(next(lines, (1, {}))[1], path)
        yield About(
            block_tokens=header.block_tokens,
            block_scope=header.block_scope,
            time_quantum_s=header.time_quantum_s,
            tokenizer=header.tokenizer,
        )
        for note in _notes(header):
            yield About(note=note)
        count = 0
        for line, value in lines:
            count += 1
            yield _row(value, Place(path, line), header)
        if count != header.rows_kept:
            raise UserError(f"{path}: {count:,} rows: should be {header.rows_kept:,}, as its header says; is it whole?")


def _notes(header: Header) -> Iterator[str]:
    """The header's, and what had been dropped from the source: the rows of this file do not tell it."""
    yield from header.notes
    if header.dropped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(header.dropped.items()))
        yield (
            f"{sum(header.dropped.values()):,} of {header.rows_read:,} rows were dropped when it was made from "
            f"{header.source}: {reasons}"
        )


def _row(value: dict[str, Any], place: Place, header: Header) -> Row:
    for key in ("t", "in", "out"):
        if key not in value:
            raise place.missing(key)
    input_tokens = tokens(value["in"], place, "in")
    row = Row(
        round(number(value["t"], place, "t", "seconds since the trace's start") * 1e9),
        input_tokens,
        tokens(value["out"], place, "out"),
    )
    return row if len(value) == 3 else _full(row, value, place, header)


def _full(row: Row, value: dict[str, Any], place: Place, header: Header) -> Row:
    unknown = sorted(set(value) - KEYS)
    if unknown:
        raise place.wrong(unknown[0], value[unknown[0]], f"one of {', '.join(sorted(KEYS))}")
    ids = blocks(value.get("blocks"), place, "blocks")
    if ids and header.block_tokens is None:
        raise place.wrong("blocks", list(ids), "left out, or the header should give block_tokens")
    session = name(value.get("session"), place, "session")
    return Row(
        at_ns=row.at_ns,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        blocks=covering(ids, row.input_tokens, header.block_tokens or 1, place, "blocks"),
        id=name(value.get("id"), place, "id"),
        session=session,
        turn=_optional_tokens(value, "turn", place),
        after=_after(value.get("after"), session, place),
        think_s=_optional_seconds(value, "think", place),
        prefix_tokens=_optional_tokens(value, "prefix", place),
        cached_tokens=_optional_tokens(value, "cached", place),
        kind=name(value.get("class"), place, "class"),
        duration_s=_optional_seconds(value, "dur", place),
    )


def _after(value: Any, session: str | None, place: Place) -> tuple[str, ...]:
    if value is None:
        return ()
    if value == "prev":
        if session is None:
            raise place.wrong("after", value, "ids of rows; only a row with a session has one before it")
        return ()
    if not isinstance(value, list):
        raise place.wrong("after", value, 'a list of ids, or "prev"')
    return tuple(found for one in value if (found := name(one, place, "after")) is not None)


def _optional_tokens(value: dict[str, Any], key: str, place: Place) -> int | None:
    return None if value.get(key) is None else tokens(value[key], place, key)


def _optional_seconds(value: dict[str, Any], key: str, place: Place) -> float | None:
    given = value.get(key)
    return None if given is None else float(number(given, place, key, "seconds, 0 or more"))


FORMAT = Format(
    name="canonical",
    label='loadgen\'s own: JSON lines, first {"loadgen_trace": 1, ...}',
    recognises=recognises,
    rows=rows,
    judged=True,
)
