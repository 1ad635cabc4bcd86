"""Which of a session's rows waited for which, from the times alone: for logs that know begin and end of each."""

from dataclasses import dataclass

import msgspec

from loadgen.traces.rows import Row

MOST_OPEN = 256  # of a session: rows that began earlier than so many others are taken as ended


@dataclass(frozen=True, slots=True)
class _Seen:
    id: str
    end_ns: int
    after: tuple[str, ...]


class Chains:
    """Gives rows of a session their parents: those that had ended when it began, but for parents of such.

    One after the other is a chain, several that ran at once and then one a join, one and then several at once a
    fan-out. A row that began while its session's first was running waited for none: it is an arrival of its own, and
    leaves the session. Rows are to be given in the order of their begin. Remembers of each session what may still be
    waited for.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, list[_Seen]] = {}
        self._rows = 0

    def linked(self, row: Row) -> Row:
        """The row with `id`, `after` and `think_s`; as it came without a session or a duration."""
        self._rows += 1
        if row.session is None or row.duration_s is None:
            return row
        id = row.id or str(self._rows)
        seen = self._sessions.setdefault(row.session, [])
        ended = [one for one in seen if one.end_ns <= row.at_ns]
        passed = {parent for one in ended for parent in one.after}
        parents = [one for one in ended if one.id not in passed]
        after = tuple(one.id for one in parents)
        running = [one for one in seen if one.end_ns > row.at_ns]
        self._sessions[row.session] = [
            *parents,
            *running[-MOST_OPEN:],
            _Seen(id, row.at_ns + round(row.duration_s * 1e9), after),
        ]
        if not parents:
            return msgspec.structs.replace(row, id=id, session=row.session if not seen else None)
        think_s = (row.at_ns - max(one.end_ns for one in parents)) / 1e9
        return msgspec.structs.replace(row, id=id, after=after, think_s=think_s)
