"""Times in whatever form a log has them: dates, seconds or finer since 1970, numbers since any start."""

from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from loadgen.traces.instants import stamp_ns
from loadgen.traces.values import Place

Unit = Literal["s", "ms", "us", "ns"]
NS: dict[Unit, int] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
EPOCH_FROM: tuple[tuple[float, Unit], ...] = ((1e17, "ns"), (1e14, "us"), (1e11, "ms"), (1e8, "s"))
FORMS = "a date, or a number of seconds, ms, us or ns"


class When:
    """Reads the times of one log. What its first one is, all are: a date, or a number in one unit.

    A number from 1e8 on is time since 1970, in the unit that puts it between 1973 and 5138; a smaller one is in
    seconds since any start, unless `unit` says otherwise.
    """

    def __init__(self, unit: Unit | None = None) -> None:
        self.unit = unit
        self.kind: Literal["dates", "epoch", "relative"] | None = None

    def ns(self, value: Any, place: Place, key: str) -> int:
        """Whole nanoseconds since the year 1 (dates) or since the column's own start. Raises UserError."""
        number = _number(value)
        if self.kind is None:
            self._learn(value, number, place, key)
        if self.kind == "dates":
            try:
                return stamp_ns(value.strip() if isinstance(value, str) else "")
            except ValueError as error:
                raise place.wrong(key, value, str(error)) from error
        if number is None or self.unit is None:
            raise place.wrong(key, value, f"a number of {self.unit}, as in the first row")
        return int((number * NS[self.unit]).to_integral_value())

    def described(self) -> str | None:
        """How the times were read, where that was a guess: a sentence; None for dates."""
        if self.kind == "epoch":
            return f"times were read as {self.unit} since 1970"
        return f"times were read as {self.unit} since the log's start" if self.kind == "relative" else None

    def _learn(self, value: Any, number: Decimal | None, place: Place, key: str) -> None:
        if number is None:
            if not isinstance(value, str) or not value.strip()[:4].isdigit():
                raise place.wrong(key, value, FORMS)
            self.kind = "dates"
            return
        found = next((unit for least, unit in EPOCH_FROM if number >= Decimal(least)), None)
        self.kind = "relative" if found is None else "epoch"
        self.unit = self.unit or found or "s"


def _number(value: Any) -> Decimal | None:
    """The value as an exact number; None if it is none. A text is one if it is written as one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() and -1e20 < number < 1e20 else None
