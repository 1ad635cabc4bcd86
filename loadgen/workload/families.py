"""Which requests are of one family, and how much of their prompts a family has in common. Pure.

A family's members stand next to each other in order of length, as questions about one document do. Going up in
length, the k-th family has the size at the level (u + k g) mod 1 of its distribution, u random and g the golden ratio:
sizes have their distribution among long prompts as among short ones (Weyl 1916). How much is shared is decided by the
few longest prompts, and would else depend on the seed the more.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadgen.workload import lengths
from loadgen.workload.traffic import Families

Draws = NDArray[np.int64]
GOLDEN = (5**0.5 - 1) / 2


class Family(NamedTuple):
    """What a member shares with the others of its family, beyond the shared prefix."""

    number: int
    tokens: int


def dealt(spec: Families, inputs: Draws, prefix: Draws, rng: np.random.Generator) -> list[Family | None]:
    """The family of each request; None for one that shares nothing. `prefix`: tokens of its shared prefix."""
    found: list[Family | None] = [None] * len(inputs)
    order = np.argsort(inputs, kind="stable")
    first = 0
    levels = (rng.random() + np.arange(len(inputs), dtype=np.float64) * GOLDEN) % 1
    for number, size in enumerate(lengths.quantile(spec.size, levels).tolist()):
        members = order[first : first + size]
        first += size
        if len(members) < 2:
            continue
        beyond = int(inputs[members[0]] - prefix[members[0]])
        tokens = min(int(beyond * spec.shared), beyond - 1)  # one token at least is the request's own
        if tokens > 0:
            for member in members:
                found[member] = Family(number, tokens)
    return found
