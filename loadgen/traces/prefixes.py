"""How much each prompt should find in an unlimited prefix cache -> block ids that make it so: one prefix for all."""

from collections.abc import Sequence
from itertools import count

BLOCK_TOKENS = 16  # vLLM's own, and the least
BLOCKS_PER_PROMPT = 64  # on average at most: longer prompts have larger blocks
ROUNDS = 5


def block_size(lengths: Sequence[int]) -> int:
    """A power of two from 16 on, so that prompts of these lengths have 64 blocks on average at most."""
    size, mean = BLOCK_TOKENS, sum(lengths) / len(lengths)
    while mean > size * BLOCKS_PER_PROMPT:
        size *= 2
    return size


def shared_blocks(lengths: Sequence[int], wished: Sequence[float], block_tokens: int) -> list[tuple[int, ...]]:
    """Per prompt its block ids: as many of the common prefix as it should share, then ids of its own.

    What rounding to whole blocks takes from one prompt the next ones get, and the first prompts, which find nothing
    yet, are made up for; a prompt's last token is never shared.
    """
    factor, target = 1.0, sum(wished) / sum(lengths)
    shared: list[int] = []
    for _ in range(ROUNDS):
        shared = _rounded(lengths, [one * factor for one in wished], block_tokens)
        found = _found(shared) * block_tokens / sum(lengths)
        factor *= target / found if found else 1.0
    own = count(max(shared))
    return [
        (*range(common), *(next(own) for _ in range(-(-length // block_tokens) - common)))
        for length, common in zip(lengths, shared, strict=True)
    ]


def reach(lengths: Sequence[int], blocks: Sequence[tuple[int, ...]], block_tokens: int) -> float:
    """The share of prompt tokens that an unlimited cache finds: of each prompt, the blocks that came before."""
    seen: set[int] = set()
    found = 0
    for ids in blocks:
        common = next((place for place, one in enumerate(ids) if one not in seen), len(ids))
        seen.update(ids)
        found += common * block_tokens
    return found / sum(lengths)


def _rounded(lengths: Sequence[int], wished: Sequence[float], block_tokens: int) -> list[int]:
    shared, owed = [], 0.0
    for length, wish in zip(lengths, wished, strict=True):
        owed += wish
        blocks = max(0, min(round(owed / block_tokens), (length - 1) // block_tokens))
        owed = min(owed - blocks * block_tokens, 64.0 * block_tokens)
        shared.append(blocks)
    return shared


def _found(shared: Sequence[int]) -> int:
    longest = found = 0
    for blocks in shared:
        found += min(blocks, longest)
        longest = max(longest, blocks)
    return found
