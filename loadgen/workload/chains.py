"""The prompts of a trace's rows as runs, so that what rows shared they share again. Pure.

Keys, before a stage's name goes into them (`contents.of_turns`): `b:ID` for a prefix block, `b:SESSION:ID` where ids
count within a session only, `s:PLACE` for what a session's turn added, `UNIQUE` for what no other row has.

Of a session without blocks, a turn's prompt begins with its `prefix_tokens` of the turn before; what was added (that
turn's answer, at its recorded length, and the new message) is the turn's own. So answers are fed back as the plan's
tokens and never as a server's output: both servers of a comparison see the same bytes. Where a row does not say what
it shares, the turn before is taken to be whole in it, unless the prompt got shorter (a compaction): then it shares
nothing.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from loadgen.records import Run, TraceRow
from loadgen.workload.prompts import ADDED, UNIQUE

Runs = tuple[Run, ...]


class Chained(NamedTuple):
    """Runs by the row's place. `assumed`: turns that do not say what they share; `compacted`: of them, the shorter."""

    runs: dict[int, Runs]
    assumed: int
    compacted: int


def chained(
    rows: Sequence[TraceRow], order: Iterable[int], before: Sequence[int | None], *, by_session: bool
) -> Chained:
    """The runs of the rows at `order`, which has a session's turns in their order. `by_session`: scope of block ids."""
    found: dict[int, Runs] = {}
    whole: dict[str, Run] = {}
    ends: dict[str, int] = {}  # of each run that a turn added, how long it has become
    assumed = compacted = 0
    for place in order:
        row = rows[place]
        if row.blocks and row.block_tokens is not None:
            found[place] = _blocks(place, row, row.block_tokens, whole, by_session)
            continue
        earlier = before[place]
        if row.session is None or earlier is None or earlier not in found:
            found[place] = _turn(place, row.input_tokens, (), ends) if row.session else (Run(UNIQUE, row.input_tokens),)
            continue
        shared = _shared(row, rows[earlier])
        assumed += row.prefix_tokens is None
        compacted += row.prefix_tokens is None and shared == 0
        found[place] = _turn(place, row.input_tokens, cut(found[earlier], shared), ends)
    return Chained(found, assumed, compacted)


def cut(runs: Sequence[Run], tokens: int) -> Runs:
    """The first `tokens` tokens of a prompt."""
    kept: list[Run] = []
    for run in runs:
        if tokens <= 0:
            break
        kept.append(run if run.tokens <= tokens else Run(run.key, tokens))
        tokens -= run.tokens
    return tuple(kept)


def _shared(row: TraceRow, before: TraceRow) -> int:
    if row.prefix_tokens is None:
        return before.input_tokens if row.input_tokens >= before.input_tokens else 0
    return min(row.prefix_tokens, before.input_tokens, row.input_tokens)


def _turn(place: int, tokens: int, head: Runs, ends: dict[str, int]) -> Runs:
    """`head` and what the turn adds: to the last run if no prompt goes on there yet (see `ends`), else a new one."""
    added = tokens - sum(run.tokens for run in head)
    if not added:
        return head
    if head and ends.get(head[-1].key) == head[-1].tokens:
        last, head = Run(head[-1].key, head[-1].tokens + added), head[:-1]
    else:
        last = Run(f"{ADDED}{place}", added)
    ends[last.key] = last.tokens
    return (*head, last)


def _blocks(place: int, row: TraceRow, block_tokens: int, whole: dict[str, Run], by_session: bool) -> Runs:
    """The last id may cover a part of a block only; a rest that no id covers is the row's own."""
    scope = f"b:{row.session}:" if by_session and row.session is not None else "b:"
    keys = [f"{scope}{block}" for block in row.blocks]
    last = min(block_tokens, row.input_tokens - block_tokens * (len(keys) - 1))
    runs = [whole.setdefault(key, Run(key, block_tokens)) for key in keys[:-1]]
    rest = row.input_tokens - block_tokens * (len(keys) - 1) - last
    own = (Run(UNIQUE if row.session is None else f"{ADDED}{place}", rest),) if rest else ()
    return (*runs, Run(keys[-1], last), *own)
