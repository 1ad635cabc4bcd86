"""Records with keys of any name -> rows: what logs of gateways and home-made ones have in common."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from loadgen.errors import UserError
from loadgen.traces.chains import Chains
from loadgen.traces.records import Record, look, records
from loadgen.traces.rows import About, Dropped, Item, Row, Source
from loadgen.traces.tables import MOST_DIGITS
from loadgen.traces.values import Place, name
from loadgen.traces.when import Unit, When

NOTHING = frozenset(("", "null", "none", "nan"))  # what exporters write for no value
Counts = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Under which keys (dots lead into objects) the parts of a row stand; of several, the first with a value.

    `duration`: in seconds times `duration_s`. `t_ends`: `t` is when the answer ended, so a row begins its duration
    earlier.
    """

    t: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    duration: tuple[str, ...] = ()
    duration_s: float = 1.0
    t_ends: bool = False
    session: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    id: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """How a log is read: its keys, which records are none to replay (a reason), and how tokens are got otherwise.

    `kind`: of all rows. `unit`: of times, where it is not to be found out.
    """

    keys: Keys
    unfit: Callable[[Record], str | None] = lambda record: None
    counts: Callable[[Record, Place], Counts] | None = None
    kind: str | None = None
    unit: Unit | None = None


def mapped(source: Source, log: Log) -> Iterator[Item]:
    """Rows in the order of the log. Raises UserError at the first record that cannot be read."""
    reading = _Reading(log)
    for path in source.paths:
        for place, record in records(path):
            reason = log.unfit(record)
            yield Dropped(reason) if reason else reading.item(record, place)
    yield from reading.notes()


def value(record: Record, keys: tuple[str, ...]) -> tuple[str, Any]:
    """The first of `keys` that has a value, and the value; the first key and None if none has."""
    for key in keys:
        found = look(record, key)
        if found is not None and not (isinstance(found, str) and found.strip().lower() in NOTHING):
            return key, found
    return keys[0] if keys else "", None


def count(record: Record, keys: tuple[str, ...], place: Place) -> int | None:
    """A number of tokens, also as text and as `1532.0`; None for none. Raises UserError for anything else."""
    key, found = value(record, keys)
    return None if found is None else whole(found, place, key)


def whole(found: Any, place: Place, key: str) -> int:
    """A whole number of tokens, also as text and as `1532.0`. Raises UserError for anything else."""
    if type(found) is str and found.isascii() and found.isdigit() and len(found) <= MOST_DIGITS:
        return int(found)
    try:
        number = Decimal(str(found).strip()) if isinstance(found, int | float | str) else Decimal(-1)
    except InvalidOperation:
        number = Decimal(-1)
    fits = number.is_finite() and 0 <= number < 10**MOST_DIGITS and number == number.to_integral_value()
    if isinstance(found, bool) or not fits:
        raise place.wrong(key, found, "a whole number of tokens")
    return int(number)


class _Reading:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.when = When(log.unit)
        self.chains = Chains()
        self.backwards = 0

    def item(self, record: Record, place: Place) -> Item:
        keys = self.log.keys
        if self.log.counts is not None:
            input_tokens, output_tokens = self.log.counts(record, place)
        else:
            input_tokens, output_tokens = count(record, keys.inputs, place), count(record, keys.outputs, place)
        if input_tokens is None or output_tokens is None:
            return Dropped("no token counts")
        at_ns, duration_s = self._times(record, place)
        session_key, session = value(record, keys.session)
        id_key, id = value(record, keys.id)
        kind_key, kind = value(record, keys.kind)
        return self.chains.linked(
            Row(
                at_ns=at_ns,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                id=name(id, place, id_key),
                session=name(session, place, session_key),
                cached_tokens=count(record, keys.cached, place),
                kind=self.log.kind or name(kind, place, kind_key),
                duration_s=duration_s,
            )
        )

    def _times(self, record: Record, place: Place) -> tuple[int, float | None]:
        keys = self.log.keys
        t_key, t = value(record, keys.t)
        if t is None:
            raise place.missing(t_key)
        at_ns = self.when.ns(t, place, t_key)
        duration_ns = self._duration_ns(record, place, at_ns)
        if keys.t_ends:
            at_ns -= duration_ns or 0
        return at_ns, None if duration_ns is None else duration_ns / 1e9

    def _duration_ns(self, record: Record, place: Place, at_ns: int) -> int | None:
        key, found = value(record, self.log.keys.duration)
        if found is not None:
            return round(_seconds(found, place, key) * self.log.keys.duration_s * 1e9)
        key, found = value(record, self.log.keys.end)
        if found is None:
            return None
        duration_ns = self.when.ns(found, place, key) - at_ns
        self.backwards += duration_ns < 0
        return duration_ns if duration_ns >= 0 else None

    def notes(self) -> Iterator[About]:
        described = self.when.described()
        if described:
            yield About(note=described)
        if self.backwards:
            yield About(note=f"{self.backwards:,} rows end before they begin: their duration is left out")


def _seconds(found: Any, place: Place, key: str) -> float:
    try:
        number = float(found) if isinstance(found, int | float | str) and not isinstance(found, bool) else -1.0
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e12:
        raise place.wrong(key, found, "a duration, 0 or more")
    return number


def parsed(text: str) -> Keys:
    """`t=KEY,in=KEY,out=KEY,...` as keys. Raises UserError for a map that is none."""
    names = {"in": "inputs", "out": "outputs", "class": "kind", "dur": "duration"}
    known = ("t", "in", "out", "session", "end", "dur", "cached", "kind", "id")
    found: dict[str, tuple[str, ...]] = {}
    for pair in text.split(","):
        part, equals, key = (piece.strip() for piece in pair.partition("="))
        if not equals or not key or part not in (*known, "class"):
            raise UserError(f"--map: {pair!r}: should be PART=KEY, PART one of {', '.join(known)}")
        if names.get(part, part) in found:
            raise UserError(f"--map: {part}: given twice; should be given once")
        found[names.get(part, part)] = (key,)
    lacking = [part for part in ("t", "in", "out") if names.get(part, part) not in found]
    if lacking:
        raise UserError(f"--map: no {', '.join(lacking)}; should be t=KEY,in=KEY,out=KEY and what else there is")
    return Keys(**cast(dict[str, Any], found))
