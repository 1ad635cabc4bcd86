"""What the blocks of a planned prompt hold, told by its runs alone: equal identities stand for equal tokens."""

from collections.abc import Hashable, Sequence
from itertools import accumulate

from loadgen.records import Request, Run


def block_contents(request: Request, *, owner: Hashable, salt: str, block_tokens: int) -> tuple[Hashable, ...]:
    """One identity per full block of prompt and output, each standing for all tokens up to the block's end.

    A run's content follows from (seed, salt, key), and its first tokens do not depend on its length, so a block inside
    one run is known by the runs before it, the run's key, and how far into the run it ends. `owner` is unique to the
    request: what it generates is its own. `salt` separates blocks of an experiment that must not share.
    """
    prompt, whole = request.prompt_tokens, request.prompt_tokens + request.output_tokens
    ends = list(accumulate(run.tokens for run in request.runs))
    before = _chains(request.runs, salt)
    found: list[Hashable] = []
    place = 0
    for end in range(block_tokens, prompt + 1, block_tokens):
        while ends[place] < end:
            place += 1
        found.append((before[place], request.runs[place].key, end))
    found += [(owner, salt, end) for end in range((prompt // block_tokens + 1) * block_tokens, whole + 1, block_tokens)]
    return tuple(found)


def _chains(runs: Sequence[Run], salt: str) -> list[int]:
    """For each run, one number that stands for all runs before it."""
    chain, found = hash(salt), []
    for run in runs:
        found.append(chain)
        chain = hash((chain, run.key, run.tokens))
    return found
