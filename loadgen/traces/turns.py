"""Sessions whose turns have recorded ends: what number a turn has, and how long its client waited before it."""

from typing import Any, NamedTuple

from loadgen.traces.rows import About
from loadgen.traces.values import Place, name


def required_id(value: Any, place: Place, key: str) -> str:
    """An id that every row has to have."""
    found = name(value, place, key)
    if found is None:
        raise place.missing(key)
    return found


class Turn(NamedTuple):
    """`number` counts from 1; `think_s`: None for the first, and where the end of the turn before is not known."""

    number: int
    think_s: float | None


class Turns:
    """The last turn of each session, one number and one instant each."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int | None]] = {}
        self._early = 0

    def follow(self, session: str, at_ns: int, end_ns: int | None) -> Turn:
        """The session's next turn, from `at_ns` to `end_ns`."""
        number, before_ns = self._last.get(session, (0, None))
        self._last[session] = (number + 1, end_ns)
        if before_ns is None:
            return Turn(number + 1, None)
        self._early += at_ns < before_ns
        return Turn(number + 1, max(0, at_ns - before_ns) / 1e9)

    def end_ns(self, session: str) -> int | None:
        """When the session's last turn ended, if that is known."""
        return self._last.get(session, (0, None))[1]

    def forget(self, session: str) -> None:
        """For a session of which nothing comes any more."""
        self._last.pop(session, None)

    def about(self) -> list[About]:
        """A note on turns that did not wait for the one before."""
        return [About(note=early(self._early))] if self._early else []


def early(count: int) -> str:
    """The note for `count` such turns, in every format's words."""
    return (
        f"{count:,} turns began before the turn before had ended (recorded in parallel): here they follow it at once, "
        "without a pause"
    )
