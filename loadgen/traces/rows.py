"""What a format is, what its reader yields row by row, and how it complains."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from loadgen.errors import UserError

BlockScope = Literal["global", "session"]
TimeUnit = Literal["s", "ms", "us", "ns"]


class Row(msgspec.Struct, frozen=True, gc=False):
    """A request as it stands in a source. None = not given. No text of prompts or answers has a place here.

    `at_ns`: arrival, whole nanoseconds since any instant (seconds since 1970 in a float lose digits); the frame takes
    the first row's away. Of a row that follows others and has no recorded time, a lower bound.
    `blocks`: chained prefix-block ids of any width: the same id means the same whole prefix up to there.
    `session`, `turn`: turns count upwards from 1; without turns, rows of a session stand in order of time. A row with
    a session and without `after` follows the session's row before it.
    `after`: ids of rows that must have ended first (several: a join; one id in several rows: a fan-out). An id that is
    not in the trace counts as ended.
    `think_s`: the client's delay after the last of those ended; None where only arrivals were recorded.
    `prefix_tokens`: of a session's turn without blocks, tokens that its prompt shares with the turn before.
    `cached_tokens`: what the recorded server read from its cache. `kind`: class of request, or model: a short name.
    `duration_s`: from arrival to the end of the answer, as recorded.
    """

    at_ns: int
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    id: str | None = None
    session: str | None = None
    turn: int | None = None
    after: tuple[str, ...] = ()
    think_s: float | None = None
    prefix_tokens: int | None = None
    cached_tokens: int | None = None
    kind: str | None = None
    duration_s: float | None = None


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """In place of a row that cannot be replayed: `reason` is counted, so few different ones, without numbers in them.

    Rows without input or output tokens need none: the frame drops them itself.
    """

    reason: str


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader learns of the trace as a whole; yielded at any time, beside rows, and not counted as one.

    The first four stand in for the format's own; two that disagree are an error. A note is a sentence for the user.
    """

    block_tokens: int | None = None
    block_scope: BlockScope | None = None
    time_quantum_s: float | None = None
    tokenizer: str | None = None
    note: str | None = None


Item = Row | Dropped | About


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What formats are recognised by: the path, and the beginning of the text in it.

    `text`: the first 64 KiB, decoded without its byte order mark, gzip undone, bad bytes replaced; of a folder, of its
    first file by name. `lines`: those that are not blank; the last may be cut off. `files`: names in a folder, sorted.
    """

    path: Path
    text: str
    lines: tuple[str, ...]
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a reader is given: one path or several (files or folders), and the options that the user gave."""

    paths: tuple[Path, ...]
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A foreign format: one file in this room, and one line in `formats.FORMATS`.

    `label`: what its files look like, for messages and help. `recognises`: from content, not from the name; never
    raises. `rows`: the items in the order of the source, lazily; raises UserError (`malformed`) at the first row that
    cannot be read. `time_unit`: of the numbers in the file; None for dates. `block_tokens`, `block_scope`: of its
    prefix blocks where they are the format's own (else the reader says so in an `About`); "session": equal ids in two
    sessions are different blocks. `options`: name -> meaning, of what `--option NAME=VALUE` may give.
    `folders`: a path may be a folder. `judged`: times whose unit was judged when the file was written.
    """

    name: str
    label: str
    recognises: Callable[[Head], bool]
    rows: Callable[[Source], Iterator[Item]]
    time_unit: TimeUnit | None = None
    block_tokens: int | None = None
    block_scope: BlockScope = "global"
    time_quantum_s: float | None = None
    notes: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    folders: bool = False
    judged: bool = False


def malformed(path: Path, line: int, column: str, value: Any, should: str) -> UserError:
    """The complaint about one cell: file, line, column, value, what would be right."""
    return UserError(f"{path}:{line}: {column}: {shown(value)}: should be {should}")


def shown(value: Any) -> str:
    """A value as a person would look for it in the file, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def blocks_fit(count: int, input_tokens: int, block_tokens: int) -> bool:
    """True if `count` blocks cover a prompt, with or without its last, partial block."""
    return input_tokens // block_tokens <= count <= -(-input_tokens // block_tokens)


def named(paths: Sequence[Path]) -> str:
    """The paths as one name for messages: the first, and how many more."""
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
