"""Which rows of a trace follow which, and an order in which no row comes before one that it follows. Pure."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from loadgen.errors import UserError
from loadgen.records import TraceRow


class Links(NamedTuple):
    """By a row's place in the trace. `unknown`: how many rows name a row that the trace does not hold."""

    parents: tuple[tuple[int, ...], ...]  # rows that must have ended before
    before: tuple[int | None, ...]  # the session's turn before
    unknown: int


def linked(rows: Sequence[TraceRow]) -> Links:
    """The links of a trace's rows.

    Turns of a session stand in order of their numbers, or of time where one has none. A row of a session that names no
    parents follows the turn before.
    """
    before = _before(rows)
    places = {row.id: place for place, row in reversed(list(enumerate(rows))) if row.id is not None}
    parents: list[tuple[int, ...]] = []
    unknown = 0
    for place, row in enumerate(rows):
        turn = before[place]
        if row.after:
            found = {places[name] for name in row.after if name in places}
            unknown += len(found) < len(set(row.after))
            parents.append(tuple(sorted(found)))
        else:
            parents.append(() if turn is None else (turn,))
    return Links(tuple(parents), before, unknown)


def _before(rows: Sequence[TraceRow]) -> tuple[int | None, ...]:
    sessions: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        if row.session is not None:
            sessions.setdefault(row.session, []).append(place)
    before: list[int | None] = [None] * len(rows)
    for places in sessions.values():
        turns = {place: turn for place in places if (turn := rows[place].turn) is not None}
        if len(turns) == len(places):
            places.sort(key=turns.__getitem__)
        for earlier, later in pairwise(places):
            before[later] = earlier
    return tuple(before)


def in_order(
    places: Iterable[int], at_s: Mapping[int, float] | Sequence[float], parents: Sequence[Sequence[int]], source: str
) -> list[int]:
    """`places` in order of time, but none before one of its parents among them.

    Raises UserError if rows wait for each other in a circle.
    """
    wanted = set(places)
    followers: dict[int, list[int]] = {}
    waits_for: dict[int, int] = {}
    for place in wanted:
        among = [parent for parent in parents[place] if parent in wanted]
        waits_for[place] = len(among)
        for parent in among:
            followers.setdefault(parent, []).append(place)
    ready = [(at_s[place], place) for place, count in waits_for.items() if count == 0]
    heapq.heapify(ready)
    found = []
    while ready:
        _, place = heapq.heappop(ready)
        found.append(place)
        for follower in followers.get(place, ()):
            waits_for[follower] -= 1
            if waits_for[follower] == 0:
                heapq.heappush(ready, (at_s[follower], follower))
    if len(found) < len(wanted):
        stuck = min(wanted - set(found))
        raise UserError(
            f"{source}: row {stuck + 1:,} in order of time waits for itself through the rows that it follows; "
            "`after` should name rows that can end before it"
        )
    return found
