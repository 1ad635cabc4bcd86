"""Paged KV blocks with a prefix cache: vLLM's `BlockPool` (vllm/v1/core/block_pool.py, 0.32.0).

A block is held by sequences (reference count) or free; a free one may still hold a known prefix. Free blocks form one
queue and are taken from its front (`get_new_blocks`): first those without known content, then known ones, the one
longest free first; of a sequence's blocks, freed together, the last one goes first (`free_blocks`, reversed). A match
takes a free block out of the queue (`touch`). Several blocks may hold the same content, as two sequences computed it
side by side: the one known first is matched, the next when that is taken for something else (`BlockHashToBlockMap`).
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence


class BlockPool:
    """`total` blocks; `caching` keeps what freed blocks hold until they are needed for something else."""

    def __init__(self, total: int, *, caching: bool) -> None:
        self.total = total
        self.caching = caching
        self._unused: list[int] = list(range(total)) if caching else []  # free, without known content
        self._kept: OrderedDict[int, None] = OrderedDict()  # free, known, longest free first
        self._free_count = total  # where nothing is kept, blocks need no names
        self._held: list[int] = [0] * total if caching else []
        self._content: list[Hashable | None] = [None] * total if caching else []  # by block
        self._known: dict[Hashable, int] = {}
        self._twins: dict[Hashable, dict[int, None]] = {}  # further blocks with a known content, first known first

    @property
    def free(self) -> int:
        """Blocks that can be taken; those that still hold a known prefix count as free."""
        return len(self._unused) + len(self._kept) if self.caching else self._free_count

    def matched(self, contents: Sequence[Hashable], most: int) -> list[int]:
        """The blocks that hold the longest known run of `contents` from its beginning, at most `most`. Takes none."""
        found: list[int] = []
        for number in range(min(most, len(contents))):
            block = self._known.get(contents[number])
            if block is None:
                break
            found.append(block)
        return found

    def unheld(self, blocks: Sequence[int]) -> int:
        """How many of `blocks` are free: sharing them leaves so many fewer to take."""
        return sum(not self._held[block] for block in blocks)

    def share(self, blocks: Sequence[int]) -> None:
        """Holds blocks that a prefix match found."""
        for block in blocks:
            if not self._held[block]:
                del self._kept[block]
            self._held[block] += 1

    def take(self, count: int) -> list[int]:
        """`count` blocks from the front of the queue; what they held is forgotten. The caller checks `free` first."""
        if not self.caching:
            self._free_count -= count
            return [0] * count
        return [self._take() for _ in range(count)]

    def know(self, block: int, content: Hashable) -> None:
        """Remembers what a full block holds."""
        self._content[block] = content
        if self._known.setdefault(content, block) != block:
            self._twins.setdefault(content, {})[block] = None

    def release(self, blocks: Sequence[int]) -> None:
        """Gives a sequence's blocks back, last one first."""
        if not self.caching:
            self._free_count += len(blocks)
            return
        for block in reversed(blocks):
            self._held[block] -= 1
            if self._held[block]:
                continue
            if self._content[block] is not None:
                self._kept[block] = None
            else:
                self._unused.append(block)

    def _take(self) -> int:
        if self._unused:
            block = self._unused.pop()
        else:
            block, _ = self._kept.popitem(last=False)
            self._forget(block)
        self._held[block] = 1
        return block

    def _forget(self, block: int) -> None:
        content, self._content[block] = self._content[block], None
        twins = self._twins.get(content)
        if twins is None:
            del self._known[content]
            return
        if self._known[content] == block:
            self._known[content] = block = next(iter(twins))
        del twins[block]
        if not twins:
            del self._twins[content]
