"""Which requests are of one family, and how much of their prompts a family has in common. Pure.

Sizes are drawn from their distribution (stratified) until they hold all requests; a family's members stand next to each
other in order of length, as questions about one document do. Which family has which size is random.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadgen.workload import lengths
from loadgen.workload.traffic import Families

Draws = NDArray[np.int64]


class Family(NamedTuple):
    """What a member shares with the others of its family, beyond the shared prefix."""

    number: int
    tokens: int


def dealt(spec: Families, inputs: Draws, prefix: Draws, rng: np.random.Generator) -> list[Family | None]:
    """The family of each request; None for one that shares nothing. `prefix`: tokens of its shared prefix."""
    found: list[Family | None] = [None] * len(inputs)
    order = np.argsort(inputs, kind="stable")
    first = 0
    for number, size in enumerate(_sizes(spec, len(inputs), rng)):
        members = order[first : first + size]
        first += size
        shortest = members[0]
        tokens = int((inputs[shortest] - prefix[shortest]) * spec.shared)
        # One token at least is the request's own.
        tokens = min(tokens, int(inputs[shortest] - prefix[shortest]) - 1)
        if len(members) > 1 and tokens > 0:
            for member in members:
                found[member] = Family(number, tokens)
    return found


def _sizes(spec: Families, count: int, rng: np.random.Generator) -> list[int]:
    """Family sizes that sum up to at least `count`."""
    sizes: list[int] = []
    while sum(sizes) < count:
        more = max(1, round((count - sum(sizes)) / lengths.mean(spec.size)))
        sizes += lengths.draw(spec.size, more, rng).tolist()
    return sizes
