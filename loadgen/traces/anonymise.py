"""A trace that may be given away: no text, no names, no dates, ids that nobody can link to another export.

Ids of sessions, rows, classes and prefix blocks become numbers in a random order, drawn from the system's randomness
for each export and forgotten: no salt and no seed is kept, so that neither a guess of a prompt nor another export of
the same trace tells which number was what. What is equal stays equal within the export: reuse of prefixes is as it was.

Lengths and times are as telling as names to whoever has another log of the same traffic: `round_tokens` and `jitter_s`
blur them. A class that fewer than `k` sessions (or rows without one) have becomes "other", or nothing if those are
fewer than k together. A field that this file does not name, and any string longer than an id, is refused.
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from loadgen.errors import UserError
from loadgen.traces.blur import Blur
from loadgen.traces.canonical import Header
from loadgen.traces.convert import header_of
from loadgen.traces.frame import Account, Clock
from loadgen.traces.read import reading
from loadgen.traces.rows import Row, TimeUnit
from loadgen.traces.write import write_trace

LONGEST_ID = 64
OTHER = "other"
NAMED = ("id", "session", "after", "kind")  # the only fields of a row that hold text
KNOWN = frozenset(
    ("at_ns", "input_tokens", "output_tokens", "blocks", "turn", "think_s", "prefix_tokens", "cached_tokens")
) | {"duration_s", *NAMED}

Name = TypeVar("Name")
Kinds = Literal["number", "keep", "drop"]


class Blurred(msgspec.Struct, frozen=True, kw_only=True):
    """What is done to a trace beside its ids. `kinds`: classes by number, by name, or not at all."""

    round_tokens: int = 1
    jitter_s: float = 0.0
    k: int = 5
    kinds: Kinds = "number"


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: how many different names and blocks were replaced, and classes merged."""

    header: Header
    sessions: int
    blocks: int
    kinds: int
    kinds_merged: int


def anonymise(
    paths: Sequence[Path],
    out: Path,
    asked: Blurred,
    *,
    format: str = "auto",
    options: Mapping[str, str] | None = None,
    time_unit: TimeUnit | None = None,
    force_units: bool = False,
) -> Exported:
    """Writes a trace of any known format to `out`, as a canonical trace that may be given away. Reads it twice.

    Raises UserError as `read_trace` does, and at the first string that is longer than an id; ExperimentError if the
    disk refuses.
    """
    if asked.round_tokens < 1 or asked.jitter_s < 0 or asked.k < 1:
        raise ValueError("rounding and k are at least 1, jitter at least 0")
    account, rows = reading(paths, format=format, options=options, time_unit=time_unit)
    names = _Names(asked.k)
    for row in rows:
        names.learn(row, account)
    if not force_units:
        account.check_units(time_unit)
    chance = random.SystemRandom()
    numbers = names.numbered(chance, asked)
    again, rows = reading(paths, format=format, options=options, time_unit=time_unit)
    blur = Blur(
        chance,
        round_tokens=asked.round_tokens,
        jitter_s=asked.jitter_s,
        block_tokens=account.block_size,
        fresh=itertools.count(len(numbers.blocks)),
    )

    def header(clock: Clock) -> Header:
        return _bare(header_of(again, clock, source="anonymised"), blur.span_s, asked)

    written = write_trace((blur.row(numbers.replaced(row, again)) for row in rows), out, header)
    return Exported(
        header=written,
        sessions=len(numbers.sessions),
        blocks=len(numbers.blocks),
        kinds=len(names.kinds),
        kinds_merged=sum(name != OTHER and numbers.kinds[name] in (OTHER, None) for name in names.kinds),
    )


class _Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """What each name is replaced by. Blocks: by their session where ids are valid within one alone."""

    sessions: dict[str, str]
    ids: dict[str, str]
    kinds: dict[str, str | None]
    blocks: dict[tuple[str | None, int], int]

    def replaced(self, row: Row, account: Account) -> Row:
        """The row without names."""
        scope = row.session if account.scope == "session" else None
        return msgspec.structs.replace(
            row,
            id=None if row.id is None else self.ids.get(row.id),
            session=None if row.session is None else self.sessions[row.session],
            after=tuple(self.ids[name] for name in row.after),
            kind=None if row.kind is None else self.kinds[row.kind],
            blocks=tuple(self.blocks[scope, id] for id in row.blocks),
        )


class _Names:
    """All names of a trace."""

    def __init__(self, k: int) -> None:
        self._k = k
        # Who has it, up to k of them: sessions, and rows without one.
        self.kinds: defaultdict[str, set[str | int]] = defaultdict(set)
        self._sessions: dict[str, None] = {}
        self._parents: dict[str, None] = {}
        self._blocks: dict[tuple[str | None, int], None] = {}

    def learn(self, row: Row, account: Account) -> None:
        """One more row. Raises UserError for text in it, and for a field that may hold anything."""
        check(row, account)
        if row.session is not None:
            self._sessions[row.session] = None
        for name in row.after:
            self._parents[name] = None
        scope = row.session if account.scope == "session" else None
        for id in row.blocks:
            self._blocks[scope, id] = None
        if row.kind is not None and len(self.kinds[row.kind]) < self._k:
            self.kinds[row.kind].add(account.rows_read if row.session is None else row.session)

    def numbered(self, chance: random.Random, asked: Blurred) -> _Numbers:
        """A number for each, in an order that nobody can repeat."""
        return _Numbers(
            sessions=_as_text(_shuffled(self._sessions, chance)),
            ids=_as_text(_shuffled(self._parents, chance)),
            kinds=self._replaced(chance, asked),
            blocks=_shuffled(self._blocks, chance),
        )

    def _replaced(self, chance: random.Random, asked: Blurred) -> dict[str, str | None]:
        if asked.kinds == "drop":
            return dict.fromkeys(self.kinds)
        rare = {name for name, holders in self.kinds.items() if len(holders) < asked.k}
        together = set().union(*(self.kinds[name] for name in rare))
        other = OTHER if len(together) >= asked.k else None
        common = [name for name in self.kinds if name not in rare]
        told = dict(zip(common, common, strict=True)) if asked.kinds == "keep" else _as_text(_shuffled(common, chance))
        return {name: told.get(name, other) for name in self.kinds}


def check(row: Row, account: Account) -> None:
    """Raises UserError for a field that is not known here, and for a string that is longer than an id.

    The string is not repeated: it may be what somebody wrote.
    """
    for field in row.__struct_fields__:
        if field not in KNOWN:
            raise UserError(
                f"row {account.rows_read:,}: {field}: not known to be free of text; the trace is not exported"
            )
    for field, value in _texts(row):
        if len(value) > LONGEST_ID or not value.isprintable():
            raise UserError(
                f"{account.source}: row {account.rows_read:,}: {field}: {len(value)} characters: should be an id of at "
                f"most {LONGEST_ID} printable characters; what is longer is text"
            )


def _texts(row: Row) -> Iterator[tuple[str, str]]:
    for field in NAMED:
        value = getattr(row, field)
        if value is not None:
            for text in (value,) if isinstance(value, str) else value:
                yield field, text


def _shuffled(names: Iterable[Name], chance: random.Random) -> dict[Name, int]:
    """A number from 0 for each, at random."""
    order = list(names)
    chance.shuffle(order)
    return {name: number for number, name in enumerate(order)}


def _as_text(numbers: dict[str, int]) -> dict[str, str]:
    return {name: str(number + 1) for name, number in numbers.items()}


def _bare(whole: Header, span_s: float, asked: Blurred) -> Header:
    """Of the header what tells nothing of where the trace is from: no name, digest, tokenizer, reason or note."""
    done = ["ids are random numbers"]
    if asked.round_tokens > 1:
        done.append(f"tokens are rounded to multiples of {asked.round_tokens}")
    if asked.jitter_s:
        done.append(f"times are moved by up to {asked.jitter_s:g} s")
    dropped = sum(whole.dropped.values())
    return Header(
        loadgen_trace=whole.loadgen_trace,
        source=whole.source,
        format=whole.format,
        rows_read=whole.rows_read,
        rows_kept=whole.rows_kept,
        dropped={"dropped before the export": dropped} if dropped else {},
        span_s=span_s,
        block_tokens=whole.block_tokens,
        block_scope=whole.block_scope,
        time_quantum_s=None if asked.jitter_s else whole.time_quantum_s,
        notes=(f"anonymised: {', '.join(done)}",),
    )
