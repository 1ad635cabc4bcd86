"""A whole trace in arrays, in order of time: some tens of bytes a row, and eight a prefix block."""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadgen.traces.frame import Account, Clock
from loadgen.traces.reuse import Bools, Ints, Prefixes, Stretches
from loadgen.traces.rows import Row

Floats = NDArray[np.float64]
NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Per row, in order of time (rows of one instant as they came). NONE where an integer is not known, NaN of floats.

    `order`: the row's place in the source, from 0. `session`: a number. `before`: the place of the session's row
    before. `starts`: rows that follow no other. `stretches`: what prompts share, where the trace has prefix blocks.
    `time_quantum_s`: the step of a coarse clock.
    """

    order: Ints
    at_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    session: Ints
    before: Ints
    starts: Bools
    think_s: Floats
    prefix_tokens: Ints
    kinds: dict[str, int]
    stretches: Stretches | None
    time_quantum_s: float | None
    notes: tuple[str, ...]


def collected(rows: Iterable[Row], account: Account) -> Columns:
    """The columns of what `reading` gives; takes all rows."""
    gathered = _Gathered()
    for row in rows:
        gathered.add(row, account.scope == "session")
    at_ns = np.array(gathered.at_ns, dtype=np.int64)
    order = np.argsort(at_ns, kind="stable")
    at_ns = at_ns[order]
    clock = Clock()
    for instant in at_ns.tolist():
        clock.see(instant)
    session = np.array(gathered.session, dtype=np.int64)[order]
    input_tokens = np.array(gathered.input_tokens, dtype=np.int64)[order]
    size = account.block_size
    return Columns(
        order=order,
        at_s=(at_ns - at_ns[0]) / 1e9,
        input_tokens=input_tokens,
        output_tokens=np.array(gathered.output_tokens, dtype=np.int64)[order],
        session=session,
        before=_before(session),
        starts=np.array(gathered.starts, dtype=bool)[order],
        think_s=np.array(gathered.think_s, dtype=np.float64)[order],
        prefix_tokens=np.array(gathered.prefix_tokens, dtype=np.int64)[order],
        kinds=dict(gathered.kinds),
        stretches=gathered.prefixes.stretches(order, input_tokens, size) if gathered.prefixes and size else None,
        time_quantum_s=account.time_quantum_s or account.format.time_quantum_s or clock.quantum_s,
        notes=account.told(clock),
    )


def _ints() -> Any:
    return array("q")


@dataclass(slots=True)
class _Gathered:
    """The rows as they come."""

    origin_ns: int | None = None  # instants since the first row's fit into 64 bits, those since the year 1 do not
    at_ns: "array[int]" = field(default_factory=_ints)
    input_tokens: "array[int]" = field(default_factory=_ints)
    output_tokens: "array[int]" = field(default_factory=_ints)
    session: "array[int]" = field(default_factory=_ints)
    prefix_tokens: "array[int]" = field(default_factory=_ints)
    starts: bytearray = field(default_factory=bytearray)
    think_s: "array[float]" = field(default_factory=lambda: array("d"))
    prefixes: Prefixes = field(default_factory=Prefixes)
    sessions: dict[str, int] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row, by_session: bool) -> None:
        if self.origin_ns is None:
            self.origin_ns = row.at_ns
        self.at_ns.append(row.at_ns - self.origin_ns)
        self.input_tokens.append(row.input_tokens)
        self.output_tokens.append(row.output_tokens)
        number = NONE if row.session is None else self.sessions.setdefault(row.session, len(self.sessions))
        self.session.append(number)
        self.prefix_tokens.append(NONE if row.prefix_tokens is None else row.prefix_tokens)
        self.starts.append(not row.after and (row.turn is None or row.turn <= 1))
        self.think_s.append(float("nan") if row.think_s is None else row.think_s)
        scope = root(row, number, len(self.at_ns)) if by_session else 0
        self.prefixes.add(row.blocks, scope, None if row.session is None else number)
        if row.kind is not None:
            self.kinds[row.kind] += 1


def root(row: Row, session: int, place: int) -> int:
    """What keeps apart block ids of different sessions, and of rows without one (`place`: the row's, from 1)."""
    return 2 * place if row.session is None else 2 * session + 1


def _before(session: Ints) -> Ints:
    """Per row the place of the session's row before."""
    order = np.argsort(session, kind="stable")
    same = (session[order][1:] == session[order][:-1]) & (session[order][1:] != NONE)
    before = np.full(len(session), NONE, dtype=np.int64)
    before[order[1:][same]] = order[:-1][same]
    return before
