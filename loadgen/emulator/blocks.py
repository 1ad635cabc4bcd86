"""Paged KV blocks with a prefix cache: vLLM's `BlockPool` (vllm/v1/core/block_pool.py, 0.32).

A block is free, held by sequences (reference count), or free but still holding a known prefix. Free blocks form one
queue: taken from its front; blocks without a known content return to the front, known ones to the back, a sequence's
last block first, so that the longest-unused tail of a prefix goes first (`free_blocks`, `get_new_blocks`, `touch`).
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence


class BlockPool:
    """`total` blocks; `caching` keeps what freed blocks hold until they are needed for something else."""

    def __init__(self, total: int, *, caching: bool) -> None:
        self.total = total
        self.caching = caching
        self._free: OrderedDict[int, None] = OrderedDict((number, None) for number in range(total) if caching)
        self._free_count = total
        self._held: list[int] = [0] * total if caching else []
        self._content: dict[int, Hashable] = {}
        self._known: dict[Hashable, int] = {}

    @property
    def free(self) -> int:
        """Blocks that can be taken; those that still hold a known prefix count as free."""
        return len(self._free) if self.caching else self._free_count

    def matched(self, contents: Sequence[Hashable]) -> list[int]:
        """The blocks that hold the longest known run of `contents` from its beginning. Takes nothing."""
        found = []
        for content in contents:
            block = self._known.get(content)
            if block is None:
                break
            found.append(block)
        return found

    def unheld(self, blocks: Sequence[int]) -> int:
        """How many of `blocks` are free: taking them shortens the queue."""
        return sum(not self._held[block] for block in blocks)

    def share(self, blocks: Sequence[int]) -> None:
        """Holds blocks that a prefix match found."""
        for block in blocks:
            if not self._held[block]:
                del self._free[block]
            self._held[block] += 1

    def take(self, count: int) -> list[int]:
        """`count` blocks from the front of the queue; what they held is forgotten. The caller checks `free` first."""
        if not self.caching:
            self._free_count -= count
            return [0] * count
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self._held[block] = 1
            content = self._content.pop(block, None)
            if content is not None and self._known.get(content) == block:
                del self._known[content]
        return taken

    def know(self, block: int, content: Hashable) -> None:
        """Remembers what a full block holds. A second block with the same content stays unknown."""
        if content not in self._known:
            self._known[content] = block
            self._content[block] = content

    def release(self, blocks: Sequence[int]) -> None:
        """Gives a sequence's blocks back, last one first."""
        if not self.caching:
            self._free_count += len(blocks)
            return
        for block in reversed(blocks):
            self._held[block] -= 1
            if not self._held[block]:
                self._free[block] = None
                if block not in self._content:
                    self._free.move_to_end(block, last=False)
