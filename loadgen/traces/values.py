"""Values of JSON rows, checked: each raises a UserError that names file, line, key, value and what would be right."""

from pathlib import Path
from typing import Any, NamedTuple

from loadgen.errors import UserError
from loadgen.traces.rows import blocks_fit, malformed

MOST_TOKENS = 10**9
LONGEST_ID = 200  # characters: what is longer is text, and text has no place in a trace
CHARACTERS_PER_TOKEN = 4


class Place(NamedTuple):
    """Where a row stands."""

    path: Path
    line: int

    def wrong(self, column: str, value: Any, should: str) -> UserError:
        """The complaint about one value."""
        return malformed(self.path, self.line, column, value, should)

    def missing(self, key: str) -> UserError:
        """The complaint about a key that every row should have."""
        return UserError(f"{self.path}:{self.line}: {key}: missing: should be given in every row")


def is_whole(value: Any) -> bool:
    """True for a whole number that is not negative; not for True and 1.0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def tokens(value: Any, place: Place, key: str) -> int:
    """A whole number of tokens."""
    if type(value) is int and 0 <= value < MOST_TOKENS:
        return value
    more = f" below {MOST_TOKENS:,}" if is_whole(value) else ""
    raise place.wrong(key, value, f"a whole number of tokens{more}")


def number(value: Any, place: Place, key: str, should: str) -> int | float:
    """A finite number from 0 to 1e15."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise place.wrong(key, value, should)
    return value


def name(value: Any, place: Place, key: str) -> str | None:
    """An id or a short name: a text, or a whole number as text; None for none."""
    if value is None or (isinstance(value, str) and 0 < len(value) <= LONGEST_ID):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise place.wrong(key, value, f"an id of at most {LONGEST_ID} characters")


def blocks(value: Any, place: Place, key: str) -> tuple[int, ...]:
    """A list of block ids, of any width; () for none."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(map(is_whole, value)):
        raise place.wrong(key, value, "a list of whole numbers")
    return tuple(value)


def covering(ids: tuple[int, ...], input_tokens: int, block_tokens: int, place: Place, key: str) -> tuple[int, ...]:
    """`ids` if so many blocks cover the prompt, with or without a partial last one."""
    if ids and not blocks_fit(len(ids), input_tokens, block_tokens):
        should = f"{-(-input_tokens // block_tokens)} for {input_tokens} input tokens (blocks of {block_tokens} tokens)"
        raise place.wrong(f"number of {key}", len(ids), should)
    return ids


def estimated_tokens(*texts: Any) -> int:
    """About how many tokens the text in these JSON values has, at CHARACTERS_PER_TOKEN; the text is not kept."""
    return -(-sum(map(_characters, texts)) // CHARACTERS_PER_TOKEN)


def _characters(value: Any) -> int:
    """Of every text in a value, however deep: a JSON value's depth is bounded by its decoder."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters, value.values()))
    return sum(map(_characters, value)) if isinstance(value, list) else 0
