"""Which rows of a trace belong together, so that a sample keeps or drops them together.

*Links*: rows of one session, and rows that follow each other (`after`). *Families*: links, and rows that share a prefix
block that few rows have. A block that many rows have (a system prompt) is no tie: of m rows that share it a sample of a
share s keeps about s m, all but the first of which still find it; with s m >= 100 that loses at most 1 % of its reuse.
Nor is a block that most rows have: whatever is drawn shares it.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from loadgen.traces.reuse import Ints, Stretches
from loadgen.traces.rows import Row

KEPT_USERS = 100  # rows of a sample that still share a block, from which on it is no tie


class Ties:
    """Learns from rows, as they are read, which of them are linked."""

    def __init__(self) -> None:
        self._rows = 0
        self._keys: dict[tuple[str, str], int] = {}
        self._row: Any = array("q")
        self._key: Any = array("q")

    def seen(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows as they are."""
        for row in rows:
            if row.session is not None:
                self._tie("session", row.session)
            for id in (*row.after, row.id):
                if id is not None:
                    self._tie("id", id)
            self._rows += 1
            yield row

    def _tie(self, kind: str, name: str) -> None:
        self._row.append(self._rows)
        self._key.append(self._keys.setdefault((kind, name), len(self._keys)))

    def links(self) -> Ints:
        """Per row, in the order of the source: the number of its group."""
        return joined(self._rows, np.array(self._row, dtype=np.int64), np.array(self._key, dtype=np.int64))


def families(links: Ints, stretches: Stretches, share: float) -> Ints:
    """`links` (in the order of time), joined where rows share a block that a sample of that share would not keep."""
    users = np.bincount(stretches.head)
    users = users[stretches.head]
    few = (users * share < KEPT_USERS) & (2 * users <= len(links))
    # The first block that few have is enough: whoever shares a later one shares it too.
    row, first = np.unique(stretches.row[few], return_index=True)
    head = int(links.max()) + 1 + stretches.head[few][first]
    return joined(len(links), np.concatenate((np.arange(len(links)), row)), np.concatenate((links, head)))


def joined(rows: int, row: Ints, key: Ints) -> Ints:
    """Per row a number of its group: rows that have a key in common, be it over others, are one group."""
    keys = int(key.max()) + 1 if len(key) else 0
    graph = coo_array((np.ones(len(row), dtype=np.int8), (row, rows + key)), shape=(rows + keys, rows + keys))
    groups = connected_components(graph, directed=False)[1][:rows]
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)
