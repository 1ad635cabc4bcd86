"""What every format goes through: each row counted as kept or dropped by reason, and its times looked at.

`Account` sees the rows in the order of the source, `Clock` in order of time; both in constant memory.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from loadgen.errors import UserError
from loadgen.quantities import text
from loadgen.traces.rows import About, BlockScope, Dropped, Format, Item, Row, TimeUnit

NS: dict[TimeUnit, int] = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
PLAUSIBLE_PER_S = (0.01, 10_000.0)  # beyond these a file's times are more likely in another unit than real
SUSPECT_PER_S = 1_000.0
FEWEST = 100  # rows from which a rate or a clock is judged
FINEST_STEP_NS = 100_000_000  # a clock with steps below a tenth of a second is not called coarse
DISTINCT_GAPS = 10_000


@dataclass(slots=True)
class Account:
    """What became of the rows of a source: `rows_read == rows_kept + dropped.total()` at any time."""

    source: str
    format: Format
    rows_read: int = 0
    rows_kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    block_tokens: int | None = None
    block_scope: BlockScope | None = None
    time_quantum_s: float | None = None
    tokenizer: str | None = None
    disorder: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    starts: int = 0  # rows that follow no other: arrivals in their own right
    first_start_ns: int | None = None
    last_start_ns: int | None = None

    def kept(self, items: Iterable[Item], time_unit: TimeUnit | None = None) -> Iterator[Row]:
        """The rows to replay, in the order of the source, with times in `time_unit` where the format's is not right."""
        scale = self._scale(time_unit)
        for item in items:
            if type(item) is Row:
                self.rows_read += 1
                if item.input_tokens == 0 or item.output_tokens == 0:
                    self.dropped["no input tokens" if item.input_tokens == 0 else "no output tokens"] += 1
                    continue
                row = item if scale is None else _scaled(item, scale)
                self._count(row)
                yield row
            elif isinstance(item, Dropped):
                self.rows_read += 1
                self.dropped[item.reason] += 1
            elif isinstance(item, About):
                self._learn(item)
        if not self.rows_kept:
            reasons = ", ".join(f"{count} with {reason}" for reason, count in self.dropped.items())
            raise UserError(
                f"{self.source}: no row to send{f': {reasons}' if reasons else ''}; should hold at least one request"
            )

    @property
    def block_size(self) -> int | None:
        """Tokens of a prefix block, as far as the rows read tell."""
        return self.block_tokens or self.format.block_tokens

    @property
    def scope(self) -> BlockScope:
        """Within what block ids are valid."""
        return self.block_scope or self.format.block_scope

    @property
    def span_s(self) -> float:
        """From the earliest arrival to the latest."""
        return 0.0 if self.first_ns is None or self.last_ns is None else (self.last_ns - self.first_ns) / 1e9

    @property
    def starts_span_s(self) -> float:
        """The same of rows that follow no other: a session may outlast all arrivals by days."""
        first, last = self.first_start_ns, self.last_start_ns
        return 0.0 if first is None or last is None else (last - first) / 1e9

    def check_units(self, time_unit: TimeUnit | None = None) -> None:
        """Raises UserError if nobody would send at such a rate: then the times are in another unit."""
        low, high = PLAUSIBLE_PER_S
        span_s = self.starts_span_s
        if self.format.judged or self.starts < FEWEST or not span_s or low <= self.starts / span_s <= high:
            return
        rate = self.starts / span_s
        unit = time_unit or self.format.time_unit
        told = f"{self.source}: {self.starts:,} requests in {span_s:.6g} s are {rate:.3g}/s, which no service sees"
        if unit is None:
            right = "dates should be right" if "unit" not in self.format.options else "times may need --time-unit"
            raise UserError(f"{told}; its {right}; --force-units takes them as they are")
        better = [
            f"{other} ({rate * NS[unit] / NS[other]:.3g}/s)"
            for other in NS
            if other != unit and low <= rate * NS[unit] / NS[other] <= high
        ]
        should = (
            f"should rather be {' or '.join(better)}: --time-unit reads them so" if better else "no unit is likelier"
        )
        raise UserError(f"{told}: its times were read as {unit}; {should}; --force-units takes them as they are")

    def told(self, clock: "Clock") -> tuple[str, ...]:
        """Notes for the user: the format's, the reader's, and on order and clock."""
        notes = [*self.format.notes, *self.notes]
        if self.disorder:
            notes.append(f"{self.disorder:,} of {self.rows_kept:,} rows were out of order and have been sorted")
        if self.starts >= FEWEST and 0 < self.starts_span_s < self.starts / SUSPECT_PER_S:
            notes.append(
                f"{self.starts:,} requests in {self.starts_span_s:.3g} s: check that the times are in the right unit"
            )
        return tuple(dict.fromkeys((*notes, *clock.notes())))

    def _scale(self, time_unit: TimeUnit | None) -> tuple[int, int] | None:
        if time_unit is None or time_unit == self.format.time_unit:
            return None
        if self.format.time_unit is None:
            raise UserError(
                f"--time-unit {time_unit}: format {self.format.name} has dates or fixed times; leave it out"
            )
        return NS[time_unit], NS[self.format.time_unit]

    def _count(self, row: Row) -> None:
        at_ns = row.at_ns
        self.rows_kept += 1
        if not row.after and (row.turn is None or row.turn <= 1):
            self.starts += 1
            self.first_start_ns = at_ns if self.first_start_ns is None else min(self.first_start_ns, at_ns)
            self.last_start_ns = at_ns if self.last_start_ns is None else max(self.last_start_ns, at_ns)
        if self.last_ns is None or self.first_ns is None:
            self.first_ns = self.last_ns = at_ns
        elif at_ns >= self.last_ns:
            self.last_ns = at_ns
        else:
            self.disorder += 1
            self.first_ns = min(self.first_ns, at_ns)

    def _learn(self, about: About) -> None:
        for name in ("block_tokens", "block_scope", "time_quantum_s", "tokenizer"):
            new, known = getattr(about, name), getattr(self, name)
            if new is not None and known is not None and new != known:
                raise UserError(f"{self.source}: {name}: {known} and {new}: should be one for the whole trace")
            if new is not None:
                setattr(self, name, new)
        if about.note is not None and about.note not in self.notes:
            self.notes.append(about.note)


def _scaled(row: Row, scale: tuple[int, int]) -> Row:
    values = {name: getattr(row, name) for name in Row.__struct_fields__}
    return Row(**{**values, "at_ns": row.at_ns * scale[0] // scale[1]})


@dataclass(slots=True)
class Clock:
    """How fine a trace's clock is, from its arrivals in order of time."""

    rows: int = 0
    batched: int = 0  # rows that share their instant with another
    _first_ns: int = 0
    _before_ns: int = 0
    _together: int = 0
    _step_ns: int = 0  # greatest common divisor of the arrivals, from the first one on
    _gaps: Counter[int] | None = field(default_factory=Counter)  # None once there are too many different ones

    def see(self, at_ns: int) -> None:
        """One more arrival, not before the last."""
        self.rows += 1
        if self.rows == 1:
            self._first_ns = self._before_ns = at_ns
            self._together = 1
            return
        gap_ns = at_ns - self._before_ns
        if gap_ns == 0:
            self._together += 1
            self.batched += 2 if self._together == 2 else 1
            return
        self._together = 1
        self._before_ns = at_ns
        if self._step_ns != 1:
            self._step_ns = math.gcd(self._step_ns, gap_ns)
        if self._gaps is not None:
            self._gaps[gap_ns] += 1
            if len(self._gaps) > DISTINCT_GAPS:
                self._gaps = None

    @property
    def quantum_s(self) -> float | None:
        """The step of the clock, where it is a tenth of a second or more; None for a fine clock, or too few rows.

        An exact step is what divides every gap. A step with a little jitter (Mooncake: 2.999 to 3.001 s) is the middle
        of the gaps, if nearly all gaps are that and most rows share their instant with another.
        """
        if self.rows < FEWEST or self.batched == 0:
            return None
        if self._step_ns >= FINEST_STEP_NS:
            return self._step_ns / 1e9
        gaps = self._gaps
        if not gaps or self.batched <= self.rows / 2:
            return None
        middle = _middle(gaps)
        near = sum(count for gap, count in gaps.items() if abs(gap - middle) <= middle / 100)
        return middle / 1e9 if near >= 0.95 * gaps.total() and middle >= FINEST_STEP_NS else None

    def notes(self) -> Iterator[str]:
        """What the user should know about it."""
        if self.batched > self.rows / 2:
            step = f" (steps of {self.quantum_s:g} s)" if self.quantum_s else ""
            yield (
                f"{text(self.batched / self.rows, 'ratio')} of the rows share their instant with others: the trace's "
                f"clock is coarse{step}; sent at these very times, not spread over the steps, requests would come in "
                "batches, and tails of TTFT would be those of batches"
            )


def _middle(gaps: Counter[int]) -> int:
    half, seen = gaps.total() / 2, 0
    for gap in sorted(gaps):
        seen += gaps[gap]
        if seen >= half:
            return gap
    return 0
