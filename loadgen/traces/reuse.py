"""What prompts of a trace share: a tree of prefix blocks, and what caches of any size would find again. Exact.

A block is a node of a tree: its id after the blocks before it, so that equal ids after different blocks differ, as in
every engine's prefix cache; `root` keeps apart ids that are valid within one session only. Nodes that always come
together (a node and its only continuation) become one *stretch*, which makes the rest quick without changing it.

LRU. A request looks its blocks up, then becomes the most recent user of all of them, its first block the most recent
(engines evict a prefix from its end). What is found in a cache of C blocks is what lies less than C blocks deep in the
stack of blocks by recency (R. L. Mattson et al., IBM Systems Journal 9, 1970): one pass gives the answer for all C.
Memory of running requests and blocks of outputs are left out; a partial last block is found as whole.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
SMALLEST_TOP = 15_625  # tokens: a million, halved six times


class Prefixes:
    """Takes rows' blocks with `add`, in any order, then gives `stretches` in the order of time."""

    def __init__(self) -> None:
        self._node: dict[tuple[int, int], int] = {}
        self._parent = array("q")
        self._nodes = array("i")  # of all rows, one after the other
        self._ends = array("q")
        self._last: dict[int, tuple[Sequence[int], int]] = {}  # a session's last row, and where its nodes begin

    def __bool__(self) -> bool:
        return len(self._parent) > 0

    def add(self, ids: Sequence[int], root: int = 0, session: int | None = None) -> None:
        """One more row. `root`: rows with different ones share nothing. `session`: rows that mostly begin alike."""
        begin, nodes, known, parents = len(self._nodes), self._nodes, self._node, self._parent
        if session is not None:
            before, start = self._last.get(session, ((), 0))
            same = _common(before, ids)
            nodes.extend(nodes[start : start + same])
            self._last[session] = ids, begin
        node = nodes[-1] if len(nodes) > begin else -1 - root
        for id in ids[len(nodes) - begin :]:
            key = (node, id)
            found = known.get(key)
            if found is None:
                found = known[key] = len(parents)
                parents.append(max(node, -1))
            nodes.append(found)
            node = found
        self._ends.append(len(nodes))

    def stretches(self, order: Ints, input_tokens: Ints, block_tokens: int) -> "Stretches":
        """`order`: the rows of `add` by time; `input_tokens`: of each, in that order."""
        nodes, ends = np.array(self._nodes, dtype=np.int32), np.array(self._ends, dtype=np.int64)
        parent = np.array(self._parent, dtype=np.int64)
        users = np.bincount(nodes, minlength=len(parent))
        begins = (parent < 0) | (users[parent] != users)
        size = np.bincount(_heads(parent, begins), minlength=len(parent))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        first = np.flatnonzero(begins[nodes])
        row, head = place[np.searchsorted(ends, first, side="right")], nodes[first].astype(np.int64)
        by_time = np.argsort(row, kind="stable")
        row, head = row[by_time], head[by_time]
        return Stretches(
            row=row,
            head=head,
            blocks=size[head],
            ends=np.append(row[1:] != row[:-1], True) if len(row) else np.zeros(0, dtype=bool),
            lacking_tokens=np.maximum(0, np.diff(ends, prepend=0)[order] * block_tokens - input_tokens),
            input_tokens=input_tokens,
            block_tokens=block_tokens,
            distinct_blocks=len(parent),
        )


def _common(one: Sequence[int], two: Sequence[int]) -> int:
    """How many first elements are equal, by comparing halves."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _heads(parent: Ints, begins: Bools) -> Ints:
    """Of each node the first of its stretch."""
    head = np.where(begins, np.arange(len(parent)), parent)
    while True:
        further = head[head]
        if np.array_equal(further, head):
            return head
        head = further


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    """The stretches that each row uses: rows in order of time, a row's stretches from its first block on.

    `head` names a stretch, `blocks` is its size, `ends`: the row's last. `lacking_tokens` (per row): by how much its
    blocks exceed its prompt.
    """

    row: Ints
    head: Ints
    blocks: Ints
    ends: Bools
    lacking_tokens: Ints
    input_tokens: Ints
    block_tokens: int
    distinct_blocks: int

    def tokens(self, blocks: Ints) -> Ints:
        """Prompt tokens, if of each stretch so many blocks are found."""
        whole = self.ends & (blocks == self.blocks)
        return blocks * self.block_tokens - np.where(whole, self.lacking_tokens[self.row], 0)

    def seen(self, scope: Ints | None = None) -> Bools:
        """Whether an earlier row used the stretch; `scope` (per row): an earlier row with the same one."""
        if scope is None:
            key = self.head
        else:
            _, key = np.unique(np.stack((scope[self.row], self.head)), axis=1, return_inverse=True)
        found = np.ones(len(key), dtype=bool)
        found[np.unique(key, return_index=True)[1]] = False
        return found

    def found_tokens(self, seen: Bools) -> Ints:
        """Per row: prompt tokens in stretches that were seen."""
        tokens = self.tokens(np.where(seen, self.blocks, 0))
        return np.bincount(self.row, weights=tokens, minlength=len(self.input_tokens)).astype(np.int64)

    def shared_ratio(self) -> float:
        """The share of prompt tokens that a cache without limit would find."""
        return float(self.found_tokens(self.seen()).sum() / self.input_tokens.sum())

    def kept_ratio(self, kept: Bools) -> float:
        """`shared_ratio` of some of the rows alone (at least one)."""
        of = np.flatnonzero(kept[self.row])
        first = np.ones(len(of), dtype=bool)
        first[np.unique(self.head[of], return_index=True)[1]] = False
        blocks = np.zeros_like(self.blocks)
        blocks[of[first]] = self.blocks[of[first]]
        return float(self.tokens(blocks).sum() / self.input_tokens[kept].sum())

    def depths(self) -> Ints:
        """How many distinct blocks were used since each stretch was used last, its own not counted; -1: it never was.

        A stretch's k-th block (from 0) lies k deeper.
        """
        stack, last, depth = _Fenwick(len(self.row)), dict[int, int](), np.full(len(self.row), -1, dtype=np.int64)
        heads, sizes = self.head.tolist(), self.blocks.tolist()
        ends = (np.flatnonzero(self.ends) + 1).tolist()
        start = total = 0
        for end in ends:
            for number in range(start, end):
                if (used := last.get(heads[number])) is not None:
                    depth[number] = total - stack.up_to(used)
            for number in range(start, end):
                place = start + end - 1 - number
                used = last.get(heads[number])
                if used is None:
                    total += sizes[number]
                else:
                    stack.add(used, -sizes[number])
                stack.add(place, sizes[number])
                last[heads[number]] = place
            start = end
        return depth

    def lru_ratio(self, depths: Ints, capacity_tokens: int) -> float:
        """The share of prompt tokens that an LRU cache of `capacity_tokens` would find."""
        capacity = min(capacity_tokens // self.block_tokens, 2**62)  # what numpy holds
        blocks = np.where(depths < 0, 0, np.clip(capacity - depths, 0, self.blocks))
        return float(self.tokens(blocks).sum() / self.input_tokens.sum())


class _Fenwick:
    """Sums over the beginning of a list whose elements change (P. M. Fenwick, 1994)."""

    def __init__(self, size: int) -> None:
        self._sums = [0] * (size + 1)

    def add(self, place: int, amount: int) -> None:
        sums, place, size = self._sums, place + 1, len(self._sums)
        while place < size:
            sums[place] += amount
            place += place & -place

    def up_to(self, place: int) -> int:
        """The sum of elements 0 to `place`."""
        sums, place, total = self._sums, place + 1, 0
        while place:
            total += sums[place]
            place &= place - 1
        return total


def ladder(stretches: Stretches, depths: Ints, steps: int = 6) -> list[int]:
    """Capacities, each twice the one before, up to one that finds nearly all (98 %) that an unlimited cache would."""
    most = stretches.shared_ratio()
    if most == 0:
        return []
    top = SMALLEST_TOP
    while stretches.lru_ratio(depths, top) < 0.98 * most:
        top *= 2
    return [size for step in reversed(range(steps)) if (size := top >> step) >= stretches.block_tokens]
