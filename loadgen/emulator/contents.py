"""What the blocks of a planned prompt hold, told by its runs alone: equal numbers stand for equal tokens."""

from itertools import count

from loadgen.records import Request

MOST_TOKENS = 1 << 25  # of one request, prompt and output: a scenario allows 2 x 10,000,000


class Contents:
    """Names block contents with whole numbers, over an engine process's life.

    A run's content follows from (seed, salt, key), and its first tokens do not depend on its length, so a block that
    ends inside a run is known by what lies before the run, the run's key, and where the block ends. Each (what lies
    before, key) gets a place of its own; a block's number is its place and its end. What is generated is its request's
    own. `salt` separates blocks of an experiment that must not share. Two numbers are equal exactly where all tokens
    up to the block's end are, but for runs that are equal by chance.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._places: dict[tuple[object, object], int] = {}
        self._next = count()

    def of(self, request: Request, salt: str) -> list[int]:
        """One number per full block of prompt and output, each standing for all tokens up to the block's end."""
        step = self._block_tokens
        found: list[int] = []
        end = step
        before: tuple[object, object] = ("salt", salt)
        reached = 0
        for run in request.runs:
            place = self._place(before, run.key)
            reached += run.tokens
            blocks = range(place + end, place + reached + 1, step)
            found += blocks
            end += len(blocks) * step
            before = (place, run.tokens)
        place = next(self._next) * MOST_TOKENS
        found += range(place + end, place + reached + request.output_tokens + 1, step)
        return found

    def _place(self, before: tuple[object, object], key: str) -> int:
        known = self._places.get((before, key))
        if known is None:
            known = self._places[before, key] = next(self._next) * MOST_TOKENS
        return known
