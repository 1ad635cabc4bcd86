"""What a row alone, and all rows together, can tell of wrong units: in constant memory."""

import math
from collections import Counter
from dataclasses import dataclass, field

from loadgen.traces.findings import Findings
from loadgen.traces.frame import FEWEST, PLAUSIBLE_PER_S
from loadgen.traces.rows import Row, blocks_fit

MOST_OUTPUT_TOKENS = 1_000_000  # in one answer
MOST_INPUT_TOKENS = 20_000_000
LONGEST_THINK_S = 30 * 86_400.0
MEDIAN_THINK_S = 3_600.0
MEDIAN_OUTPUT_PER_S = (0.1, 20_000.0)  # of a single answer
MEDIAN_OUTPUT_TOKENS = 65_536.0
WHOLE_GAP_RATIO = 0.9
WHOLE_GAP_S = 3_600.0
STEPS = 20  # of a median's scale, per factor of ten


def lengths(number: int, row: Row, block_tokens: int | None, findings: Findings) -> None:
    """One row's numbers against each other, and against what any model can do."""
    for key, value, most in (
        ("out", row.output_tokens, MOST_OUTPUT_TOKENS),
        ("in", row.input_tokens, MOST_INPUT_TOKENS),
    ):
        if value > most:
            findings.add(
                "lengths", f"row {number:,}: {key}: {value:,}: should be tokens of one request, at most {most:,}"
            )
    for key, part in (("cached", row.cached_tokens), ("prefix", row.prefix_tokens)):
        if part is not None and part > row.input_tokens:
            findings.add(
                "lengths", f"row {number:,}: {key}: {part:,}: should be at most the {row.input_tokens:,} input tokens"
            )
    if row.think_s is not None and row.think_s > LONGEST_THINK_S:
        findings.add(
            "units",
            f"row {number:,}: think: {row.think_s:g} s: should be seconds, below 30 days; read from ms it would be "
            f"{row.think_s / 1000:g} s",
        )
    if block_tokens and row.blocks and not blocks_fit(len(row.blocks), row.input_tokens, block_tokens):
        findings.add(
            "blocks against lengths",
            f"row {number:,}: {len(row.blocks):,} blocks: should be {-(-row.input_tokens // block_tokens):,} for "
            f"{row.input_tokens:,} input tokens (blocks of {block_tokens} tokens)",
        )


class Median:
    """The median of positive numbers, to a tenth, in constant memory."""

    def __init__(self) -> None:
        self._steps: Counter[int] = Counter()

    def add(self, value: float) -> None:
        """One more; what is not positive is left out."""
        if value > 0:
            self._steps[round(math.log10(value) * STEPS)] += 1

    def value(self) -> float | None:
        """None of fewer than a hundred values."""
        if self._steps.total() < FEWEST:
            return None
        seen = 0
        for step in sorted(self._steps):
            seen += self._steps[step]
            if 2 * seen >= self._steps.total():
                return float(10 ** (step / STEPS))
        return None


@dataclass(slots=True)
class Units:
    """Medians and gaps over all rows that no service has."""

    think_s: Median = field(default_factory=Median)
    output_tokens: Median = field(default_factory=Median)
    output_per_s: Median = field(default_factory=Median)
    starts: int = 0
    first_ns: int = 0
    last_ns: int = 0
    before_ns: int = 0
    widest: tuple[int, int] = (0, 0)  # the gap between two arrivals, and the row after it

    def see(self, number: int, row: Row) -> None:
        """One more row."""
        self.output_tokens.add(row.output_tokens)
        if row.think_s is not None:
            self.think_s.add(row.think_s)
        if row.duration_s:
            self.output_per_s.add(row.output_tokens / row.duration_s)
        if row.session is None and not row.after:
            self._arrival(number, row.at_ns)

    def _arrival(self, number: int, at_ns: int) -> None:
        self.starts += 1
        if self.starts == 1:
            self.first_ns = self.last_ns = self.before_ns = at_ns
        self.widest = max(self.widest, (abs(at_ns - self.before_ns), number))
        self.before_ns = at_ns
        self.first_ns, self.last_ns = min(self.first_ns, at_ns), max(self.last_ns, at_ns)

    def rate(self, findings: Findings) -> None:
        """A rate that is unlikely, of a file whose times were judged before, or are few."""
        span_s = (self.last_ns - self.first_ns) / 1e9
        low, high = PLAUSIBLE_PER_S
        if self.starts >= FEWEST and span_s and not low <= self.starts / span_s <= high:
            findings.add(
                "unlikely rate",
                f"all rows: t: {self.starts / span_s:.3g} requests/s: should be more like {low:g} to {high:,.0f}; are "
                "times in seconds?",
            )

    def end(self, findings: Findings) -> None:
        """What cannot be right of all rows together."""
        gap_s, number = self.widest[0] / 1e9, self.widest[1]
        span_s = (self.last_ns - self.first_ns) / 1e9
        if self.starts >= FEWEST and gap_s > max(WHOLE_GAP_S, WHOLE_GAP_RATIO * span_s):
            findings.add(
                "units",
                f"row {number:,}: t: {gap_s:,.0f} s from the row before, of {span_s:,.0f} s in all: should be in the "
                "unit and the zone of the other rows",
            )
        for line in self._medians():
            findings.add("units", line)

    def _medians(self) -> list[str]:
        lines = []
        think_s, per_s, output = self.think_s.value(), self.output_per_s.value(), self.output_tokens.value()
        low, high = MEDIAN_OUTPUT_PER_S
        if think_s is not None and think_s > MEDIAN_THINK_S:
            lines.append(
                f"all rows: think: median {think_s:,.0f} s: should be seconds; read from ms it would be "
                f"{think_s / 1e3:,.3g} s"
            )
        if per_s is not None and not low <= per_s <= high:
            lines.append(
                f"all rows: dur: a median of {per_s:.3g} output tokens per second of an answer: should be "
                f"{low:g} to {high:,.0f}; dur is in seconds, {'ms' if per_s < low else 's'} may have been taken for "
                f"{'s' if per_s < low else 'ms'}"
            )
        if output is not None and output > MEDIAN_OUTPUT_TOKENS:
            lines.append(
                f"all rows: out: median {output:,.0f}: should be tokens of one answer; are they characters or bytes?"
            )
        return lines
