"""What rows say of each other, checked row by row: ids, parents, turns, contexts, chained blocks.

Remembers each id, each session's last row, and the predecessor of each block; of traces without them nothing.
"""

from typing import NamedTuple

from loadgen.traces.columns import root
from loadgen.traces.findings import Findings
from loadgen.traces.rows import Row, shown


class _Place(NamedTuple):
    number: int
    at_ns: int


class Ids:
    """Ids are of one row alone; parents are other rows, and earlier."""

    def __init__(self) -> None:
        self._rows: dict[str, _Place] = {}
        self._awaited: dict[str, list[_Place]] = {}  # parents that have not come yet, and their followers

    def see(self, number: int, row: Row, findings: Findings) -> None:
        """One more row."""
        for parent in row.after:
            self._parent(parent, _Place(number, row.at_ns), row, findings)
        if row.id is None:
            return
        first = self._rows.setdefault(row.id, _Place(number, row.at_ns))
        if first.number != number:
            findings.add(
                "ids", f"row {number:,}: id: {shown(row.id)}: should be of one row alone; row {first.number:,} has it"
            )
        for follower in self._awaited.pop(row.id, ()):
            self._order(follower, _Place(number, row.at_ns), row.id, findings)

    def end(self, findings: Findings) -> None:
        """What has not come."""
        for parent, followers in self._awaited.items():
            for follower in followers:
                findings.add(
                    "parents that are not there",
                    f"row {follower.number:,}: after: {shown(parent)}: no row has this id; it counts as ended",
                )

    def _parent(self, parent: str, follower: _Place, row: Row, findings: Findings) -> None:
        if parent == row.id:
            findings.add(
                "parents", f"row {follower.number:,}: after: {shown(parent)}: should be another row, not itself"
            )
        elif parent in self._rows:
            self._order(follower, self._rows[parent], parent, findings)
        else:
            self._awaited.setdefault(parent, []).append(follower)

    def _order(self, follower: _Place, parent: _Place, id: str, findings: Findings) -> None:
        if (parent.at_ns, parent.number) > (follower.at_ns, follower.number):
            late_s = (parent.at_ns - follower.at_ns) / 1e9
            findings.add(
                "parents",
                f"row {follower.number:,}: after: {shown(id)}: should be an earlier row; row {parent.number:,} "
                f"is {late_s:g} s later",
            )


class _Turn(NamedTuple):
    number: int
    at_ns: int
    turn: int | None
    input_tokens: int
    id: str | None


class Turns:
    """Turns of a session count upwards with time; prompts of a session grow."""

    def __init__(self) -> None:
        self._last: dict[str, _Turn] = {}
        self._first: dict[str, tuple[int, int]] = {}  # the lowest turn, and its row

    def see(self, number: int, row: Row, findings: Findings) -> None:
        """One more row."""
        if row.session is None:
            return
        now = _Turn(number, row.at_ns, row.turn, row.input_tokens, row.id)
        before = self._last.get(row.session)
        self._last[row.session] = now
        if before is not None:
            self._turn(row, before, now, findings)
            if not row.after or before.id in row.after:
                _shrinks(row, before, now, findings)
        if row.turn is not None:
            self._first[row.session] = min(self._first.get(row.session, (row.turn, number)), (row.turn, number))

    def end(self, findings: Findings) -> None:
        """Sessions whose beginning is not there."""
        for session, (turn, number) in self._first.items():
            if turn > 1:
                findings.add(
                    "parents that are not there",
                    f"row {number:,}: turn: {turn}: the first of session {shown(session)}; turns before it are missing",
                )

    def _turn(self, row: Row, before: _Turn, now: _Turn, findings: Findings) -> None:
        if now.turn is None or before.turn is None:
            return
        later_ns = now.at_ns - before.at_ns
        if now.turn == before.turn and not row.after:
            findings.add(
                "turns",
                f"row {now.number:,}: turn: {now.turn}: should be of one row alone; row {before.number:,} has it",
            )
        elif (now.turn - before.turn) * later_ns < 0:
            findings.add(
                "turns",
                f"row {now.number:,}: turn: {now.turn}: should grow with time; row {before.number:,} is turn "
                f"{before.turn}, {abs(later_ns) / 1e9:g} s {'earlier' if later_ns > 0 else 'later'}",
            )


def _shrinks(row: Row, before: _Turn, now: _Turn, findings: Findings) -> None:
    follows = before.turn is None or now.turn is None or now.turn > before.turn
    if follows and now.at_ns >= before.at_ns and now.input_tokens < before.input_tokens:
        findings.add(
            "contexts that shrink",
            f"row {now.number:,}: {now.input_tokens:,} input tokens: session {shown(row.session)} had "
            f"{before.input_tokens:,} in row {before.number:,}; its history was cut or condensed",
        )


class Chain:
    """A block id stands for all blocks before it too: wherever it occurs, the same id comes before it."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, int], tuple[int | None, int]] = {}
        self._sessions: dict[str, int] = {}

    def see(self, number: int, row: Row, by_session: bool, findings: Findings) -> None:
        """One more row. At most one finding of each."""
        if not row.blocks:
            return
        if len(set(row.blocks)) < len(row.blocks):
            findings.add("chained blocks", f"row {number:,}: blocks: an id twice: should be different, being chained")
            return
        session = 0
        if by_session and row.session is not None:
            session = self._sessions.setdefault(row.session, len(self._sessions))
        scope = root(row, session, number) if by_session else 0
        known, before = self._before, None
        for id in row.blocks:
            stands = known.setdefault((scope, id), (before, number))
            if stands[0] != before:
                findings.add("chained blocks", _told(number, id, before, stands, by_session))
                return
            before = id


def _told(number: int, id: int, before: int | None, stands: tuple[int | None, int], by_session: bool) -> str:
    hint = "" if by_session else "; ids that are valid within one session need block_scope session"
    return (
        f"row {number:,}: block {id} {_after(before)}: should be {_after(stands[0])} as in row {stands[1]:,}: the same "
        f"id means the same whole prefix{hint}"
    )


def _after(id: int | None) -> str:
    return "at the beginning" if id is None else f"after {id}"
