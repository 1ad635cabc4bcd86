"""What prompts are made of: a pure function of (seed, salt, run key), exact in tokens. Pure.

Each run's numbers come from SHAKE-128, an extendable-output function: the first m numbers of a run do not depend on how
many follow, so two requests that hold the same run at different lengths share a true prefix. Number k is mapped to
[0, span) as k * span >> 32. Runs whose key starts with `UNIQUE` belong to one request. Those whose key starts with
`ADDED` are shared by the turns of a session, each at its own length; all others are shared and kept in a small cache.
"""

from functools import lru_cache
from hashlib import blake2b, shake_128

import numpy as np
from numpy.typing import NDArray

from loadgen.errors import UserError
from loadgen.records import Plan, Request, Run, Vocabulary

UNIQUE = "u:"
ADDED = "s:"


def render(request: Request, *, seed: int, salt: str, vocabulary: Vocabulary) -> list[int] | str:
    """The prompt of `request`: token ids, or words joined by single spaces, by the kind of `vocabulary`.

    The same key, seed and salt give the same content in every process; another key, seed or salt gives another.
    `len(ids)` is `request.prompt_tokens`; words are fewer by `vocabulary.overhead_tokens`, taken off the end so
    that a shared prefix stays whole. Raises UserError if the overhead leaves no word (see `check`).
    """
    secret = blake2b(f"{seed}:{salt}".encode(), digest_size=32).digest()
    if vocabulary.kind == "token_ids":
        numbers = _contents(request.runs, secret, vocabulary.high - vocabulary.low)
        return (numbers + vocabulary.low).tolist()  # type: ignore[no-any-return]
    words = vocabulary.words
    runs = _shortened(request, vocabulary.overhead_tokens)
    return " ".join([words[number] for number in _contents(runs, secret, len(words)).tolist()])


def check(plan: Plan, vocabulary: Vocabulary) -> None:
    """Raises UserError if a prompt of `plan` is too short to be made from `vocabulary`: one line per stage."""
    complaints = []
    for stage in plan.stages:
        shortest = min((request.prompt_tokens for request in (*stage.warmup, *stage.requests)), default=None)
        if shortest is not None and shortest <= vocabulary.overhead_tokens:
            complaints.append(
                f"stage {stage.spec.name}: a prompt of {shortest} tokens cannot be made: the server itself adds "
                f"{vocabulary.overhead_tokens} (chat template, BOS); input_tokens should be at least "
                f"{vocabulary.overhead_tokens + 1}"
            )
    if complaints:
        raise UserError(*complaints)


def _shortened(request: Request, tokens: int) -> list[Run]:
    if request.prompt_tokens <= tokens:
        raise UserError(
            f"request {request.index}: a prompt of {request.prompt_tokens} tokens cannot be made: the server itself "
            f"adds {tokens}"
        )
    runs = list(request.runs)
    while tokens >= runs[-1].tokens:
        tokens -= runs.pop().tokens
    runs[-1] = Run(runs[-1].key, runs[-1].tokens - tokens)
    return runs


def _contents(runs: list[Run] | tuple[Run, ...], secret: bytes, span: int) -> NDArray[np.uint32]:
    pieces = [
        (_numbers if run.key.startswith((UNIQUE, ADDED)) else _shared)(secret, run.key, run.tokens, span)
        for run in runs
    ]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _numbers(secret: bytes, key: str, tokens: int, span: int) -> NDArray[np.uint32]:
    stream = np.frombuffer(shake_128(secret + key.encode()).digest(4 * tokens), dtype="<u4")
    return ((stream.astype(np.uint64) * np.uint64(span)) >> np.uint64(32)).astype(np.uint32)


@lru_cache(maxsize=1024)
def _shared(secret: bytes, key: str, tokens: int, span: int) -> NDArray[np.uint32]:
    return _numbers(secret, key, tokens, span)
