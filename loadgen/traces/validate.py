"""What cannot be right in a trace, row by row, as far as a reader can read it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loadgen.errors import UserError
from loadgen.traces.findings import Findings
from loadgen.traces.frame import Account
from loadgen.traces.links_check import Chain, Ids, Turns
from loadgen.traces.read import items_of
from loadgen.traces.rows import Dropped, Item, Row, TimeUnit
from loadgen.traces.rows_check import Units, lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What was found. `stopped`: why the rest could not be read: the first malformed row."""

    account: Account
    findings: Findings
    stopped: str | None


def validate(
    paths: Sequence[Path],
    *,
    format: str = "auto",
    options: Mapping[str, str] | None = None,
    time_unit: TimeUnit | None = None,
    force_units: bool = False,
) -> Validation:
    """Checks a trace of any known format, as it is read.

    Memory is constant but for what rows say of each other: ids, sessions and prefix blocks. Rows are numbered from 1
    in the order of the source, dropped ones too, a header not. `force_units`: an unlikely rate is but a note. Raises
    UserError if the format is not known, or an option is wrong.
    """
    account, items, unit = items_of(paths, format=format, options=options, time_unit=time_unit)
    checks = _Checks(account)
    stopped = None
    try:
        for row in account.kept(checks.passed(items), unit):
            checks.see(row)
    except UserError as error:
        if account.rows_kept == 0:
            raise
        stopped = str(error)
    return checks.done(stopped, time_unit, force_units)


@dataclass(slots=True)
class _Checks:
    account: Account
    findings: Findings = field(default_factory=Findings)
    units: Units = field(default_factory=Units)
    ids: Ids = field(default_factory=Ids)
    turns: Turns = field(default_factory=Turns)
    chain: Chain = field(default_factory=Chain)
    other: Counter[str] = field(default_factory=Counter)
    number: int = 0
    latest_ns: int | None = None

    def passed(self, items: Iterator[Item]) -> Iterator[Item]:
        """The items as they are, numbered, and what will be dropped told."""
        for item in items:
            if isinstance(item, Row):
                self.number += 1
                self._zero(item)
            elif isinstance(item, Dropped):
                self.number += 1
                self.findings.add("other rows that are dropped", f"row {self.number:,}: {item.reason}")
            yield item

    def _zero(self, row: Row) -> None:
        key = "in" if row.input_tokens == 0 else "out"
        if row.input_tokens == 0 or row.output_tokens == 0:
            self.findings.add("zero tokens", f"row {self.number:,}: {key}: 0: should be at least 1; the row is dropped")

    def see(self, row: Row) -> None:
        """One row that is kept."""
        number, findings, account = self.number, self.findings, self.account
        if self.latest_ns is not None and row.at_ns < self.latest_ns:
            late_s = (self.latest_ns - row.at_ns) / 1e9
            findings.add(
                "order", f"row {number:,}: t: {late_s:g} s before a row that stands earlier; it will be sorted"
            )
        self.latest_ns = row.at_ns if self.latest_ns is None else max(self.latest_ns, row.at_ns)
        lengths(number, row, account.block_size, findings)
        self.units.see(number, row)
        self.ids.see(number, row, findings)
        self.turns.see(number, row, findings)
        self.chain.see(number, row, account.scope == "session", findings)

    def done(self, stopped: str | None, time_unit: TimeUnit | None, force_units: bool) -> Validation:
        """What can only be said at the end, if that was reached."""
        if stopped is None:
            self._rate(time_unit, force_units)
            self.units.end(self.findings)
            self.ids.end(self.findings)
            self.turns.end(self.findings)
        return Validation(account=self.account, findings=self.findings, stopped=stopped)

    def _rate(self, time_unit: TimeUnit | None, force_units: bool) -> None:
        try:
            self.account.check_units(time_unit)
        except UserError as error:
            self.findings.add("unlikely rate" if force_units else "units", f"all rows: t: {error}")
        else:
            self.units.rate(self.findings)
