"""Randomness that is the same in every process: seeded by what it is for, never by Python's hash()."""

from hashlib import blake2b

import numpy as np


def generator(seed: int, *purpose: str) -> np.random.Generator:
    """A numpy generator for one purpose, e.g. `generator(7, "saturated", "input_tokens")`.

    Each purpose has its own stream, so that a new stage or a changed length leaves the others as they were.
    """
    digest = blake2b(repr((seed, *purpose)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))
