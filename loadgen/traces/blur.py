"""Lengths rounded and times moved, so that a trace cannot be matched with another log of the same traffic."""

import random
from collections.abc import Iterator

import msgspec

from loadgen.traces.rows import Row


class Blur:
    """Rounds tokens to multiples of `round_tokens` (1: not at all) and moves times by up to `jitter_s` (0: not at all).

    Lengths are rounded to the nearest multiple, at least one; what is shared or cached is rounded down, so that it
    still fits. Blocks that no longer cover a prompt are cut, or filled up with `fresh` ones that nothing shares.
    Arrivals move by 0 to `jitter_s`, but no row before the one of its session, or the parents, that it came after;
    think times and durations by up to `jitter_s` either way, at most by half of themselves. `chance` decides.
    """

    def __init__(
        self,
        chance: random.Random,
        *,
        round_tokens: int,
        jitter_s: float,
        block_tokens: int | None,
        fresh: Iterator[int],
    ) -> None:
        self._chance = chance
        self._step = round_tokens
        self._jitter_s = jitter_s
        self._block_tokens = block_tokens or 1
        self._fresh = fresh
        self._moved: dict[tuple[str, str], tuple[int, int]] = {}  # session or row: its last instant, before and after
        self._first_ns: int | None = None
        self._last_ns = 0

    @property
    def span_s(self) -> float:
        """From the first row given so far to the last."""
        return 0.0 if self._first_ns is None else (self._last_ns - self._first_ns) / 1e9

    def row(self, row: Row) -> Row:
        """The row blurred."""
        input_tokens = self._nearest(row.input_tokens)
        at_ns = self._instant(row)
        self._first_ns, self._last_ns = (
            (at_ns, at_ns) if self._first_ns is None else (min(self._first_ns, at_ns), max(self._last_ns, at_ns))
        )
        return msgspec.structs.replace(
            row,
            at_ns=at_ns,
            input_tokens=input_tokens,
            output_tokens=self._nearest(row.output_tokens),
            blocks=self._covering(row.blocks, input_tokens),
            prefix_tokens=self._below(row.prefix_tokens, input_tokens),
            cached_tokens=self._below(row.cached_tokens, input_tokens),
            think_s=self._shaken(row.think_s),
            duration_s=self._shaken(row.duration_s),
        )

    def _nearest(self, tokens: int) -> int:
        return max(self._step, (tokens + self._step // 2) // self._step * self._step)

    def _below(self, tokens: int | None, most: int) -> int | None:
        return None if tokens is None else min(most, tokens // self._step * self._step)

    def _covering(self, ids: tuple[int, ...], input_tokens: int) -> tuple[int, ...]:
        if not ids:
            return ids
        most, fewest = -(-input_tokens // self._block_tokens), input_tokens // self._block_tokens
        return ids[:most] + tuple(next(self._fresh) for _ in range(fewest - len(ids)))

    def _shaken(self, value_s: float | None) -> float | None:
        if value_s is None or not self._jitter_s:
            return value_s
        by_s = min(self._jitter_s, value_s / 2)
        return round(value_s + self._chance.uniform(-by_s, by_s), 6)

    def _instant(self, row: Row) -> int:
        if not self._jitter_s:
            return row.at_ns
        at_ns = row.at_ns + round(self._chance.uniform(0, self._jitter_s) * 1e9)
        for name in [*(("id", parent) for parent in row.after), ("session", row.session or "")]:
            before = self._moved.get(name)
            if before is not None and before[0] <= row.at_ns:
                at_ns = max(at_ns, before[1])
        if row.session is not None:
            self._moved["session", row.session] = row.at_ns, at_ns
        if row.id is not None:
            self._moved["id", row.id] = row.at_ns, at_ns
        return at_ns
