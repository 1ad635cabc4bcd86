"""Mooncake's traces: JSON lines with timestamp (ms), input_length, output_length, hash_ids.

Each id stands for a 512-token block and all blocks before it, so the same id means the same whole prefix; the last id
covers what is left of the prompt. A row whose number of ids is not ceil(input_length / 512) is refused: it comes from
a trace with another block size, and would be replayed with prompts of the wrong length or reuse. Rows without hash_ids
share nothing. Source: github.com/kvcache-ai/Mooncake, FAST25-release.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from loadgen.errors import UserError
from loadgen.traces.rows import Format, Row, malformed, shown

KEYS = ("timestamp", "input_length", "output_length")
BLOCK_TOKENS = 512


def recognises(first_line: str) -> bool:
    """True if the file's first line is a row of this format (and not of one that adds chat_id and counts seconds)."""
    try:
        row = json.loads(first_line)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and set(KEYS) <= set(row) and "chat_id" not in row


def rows(lines: Iterable[str], path: Path) -> Iterator[Row]:
    """The rows in the order of the file. Raises UserError at the first malformed one."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _row(_decoded(line, path, number), path, number)


def _decoded(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}:{number}: {shown(line.strip())}: should be a JSON object ({error})") from error
    if not isinstance(row, dict):
        raise UserError(f"{path}:{number}: {shown(line.strip())}: should be a JSON object with {', '.join(KEYS)}")
    missing = [key for key in KEYS if key not in row]
    if missing:
        raise UserError(f"{path}:{number}: {missing[0]}: missing: should be given in every row")
    return row


def _row(row: dict[str, Any], path: Path, number: int) -> Row:
    at_ms, input_tokens, output_tokens = (row[key] for key in KEYS)
    if isinstance(at_ms, bool) or not isinstance(at_ms, int | float) or not 0 <= at_ms < 1e15:
        raise malformed(path, number, "timestamp", at_ms, "milliseconds since the trace's start")
    for column, value in (("input_length", input_tokens), ("output_length", output_tokens)):
        if not _whole(value) or value >= 10**9:
            raise malformed(path, number, column, value, "a whole number of tokens")
    return Row(round(at_ms * 1_000_000), input_tokens, output_tokens, _blocks(row, input_tokens, path, number))


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _blocks(row: dict[str, Any], input_tokens: int, path: Path, number: int) -> tuple[int, ...]:
    ids = row.get("hash_ids")
    if ids is None:
        return ()
    if not isinstance(ids, list) or not all(map(_whole, ids)):
        raise malformed(path, number, "hash_ids", ids, "a list of whole numbers")
    expected = -(-input_tokens // BLOCK_TOKENS)
    if len(ids) != expected:
        should = f"{expected} for input_length {input_tokens} (blocks of {BLOCK_TOKENS} tokens)"
        raise malformed(path, number, "number of hash_ids", len(ids), should)
    return tuple(ids)


FORMAT = Format(recognises=recognises, rows=rows, block_tokens=BLOCK_TOKENS)
