"""What a prefix cache could give a stage, from the runs of its prompts alone. Pure.

Two prompts begin alike as far as their runs are equal: whole runs, and of the first that differs in length the shorter.
Requests are taken one after the other, in the order given (see `demand.met`), and what a server generated is never
asked for again (answers fed back to it are the plan's own): a server whose requests overlap may find less, and one
whose requests come in another order more or less.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from loadgen.records import Request, Reuse, Run
from loadgen.workload.prompts import UNIQUE

BLOCKS = (1, 16, 32, 64, 128, 256)  # block sizes of servers' caches
POINTS = 12  # of the curve over capacities

_Node = tuple[int, str]  # the exact prefix before a run, and the run's key


class _Prefixes:
    """A number for each exact prefix: the runs that make it up, with their lengths."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str, int], int] = {}

    def nodes(self, runs: Sequence[Run]) -> list[_Node]:
        """For each run, what stands before it, and its key."""
        before, found = 0, []
        for run in runs:
            found.append((before, run.key))
            before = self._numbers.setdefault((before, run.key, run.tokens), len(self._numbers) + 1)
        return found


def common_tokens(requests: Sequence[Request]) -> Iterator[int]:
    """Of each prompt, how many of its first tokens an earlier one begins with."""
    prefixes = _Prefixes()
    longest: dict[_Node, int] = {}
    for request in requests:
        common, alike = 0, True
        for node, run in zip(prefixes.nodes(request.runs), request.runs, strict=True):
            if run.key.startswith(UNIQUE):
                break
            known = longest.get(node, 0)
            if alike:
                common += min(known, run.tokens)
                alike = known >= run.tokens
            if known < run.tokens:
                longest[node] = run.tokens
        yield common


def hit_tokens(common: int, prompt_tokens: int, block_tokens: int) -> int:
    """What a cache of whole blocks gives of `common` tokens: never the prompt's last one, which must be computed."""
    return common if block_tokens == 1 else min(common, prompt_tokens - 1) // block_tokens * block_tokens


def reused_ratio(requests: Sequence[Request], block_tokens: int = 1) -> float:
    """The share of prompt tokens that an unlimited cache of blocks of `block_tokens` tokens would hold already."""
    return _share(requests, common_tokens(requests), block_tokens)


def lru_ratio(requests: Sequence[Request], capacity_tokens: int, block_tokens: int = 1) -> float:
    """The share of prompt tokens that a cache of `capacity_tokens` holds when their request comes."""
    return _share(requests, held_tokens(requests, capacity_tokens), block_tokens)


def held_tokens(requests: Sequence[Request], capacity_tokens: int) -> Iterator[int]:
    """Of each prompt, how many of its first tokens a cache of `capacity_tokens` holds when it comes.

    It forgets what was used longest ago, of one prompt its end first. Prompts and outputs fill it.
    """
    prefixes = _Prefixes()
    held: OrderedDict[_Node, int] = OrderedDict()  # tokens from each node's beginning; the longest unused first
    free = capacity_tokens
    for number, request in enumerate(requests):
        nodes = prefixes.nodes(request.runs)
        yield _held_tokens(held, nodes, request.runs)
        held[0, f"output {number}"] = request.output_tokens
        free -= request.output_tokens
        for node, run in zip(reversed(nodes), reversed(request.runs), strict=True):
            known = held.pop(node, 0)
            held[node] = max(known, run.tokens)
            free -= held[node] - known
        while free < 0:
            node, tokens = held.popitem(last=False)
            if tokens > -free:
                held[node] = tokens + free
                held.move_to_end(node, last=False)
            free += min(tokens, -free)


def _share(requests: Sequence[Request], found: Iterable[int], block_tokens: int) -> float:
    prompts = [request.prompt_tokens for request in requests]
    hits = [hit_tokens(tokens, prompt, block_tokens) for tokens, prompt in zip(found, prompts, strict=True)]
    return sum(hits) / sum(prompts)


def _held_tokens(held: "OrderedDict[_Node, int]", nodes: Sequence[_Node], runs: Sequence[Run]) -> int:
    tokens = 0
    for node, run in zip(nodes, runs, strict=True):
        known = held.get(node, 0)
        tokens += min(known, run.tokens)
        if known < run.tokens:
            break
    return tokens


def distinct_tokens(requests: Sequence[Request]) -> int:
    """What an unlimited cache holds in the end: every prompt token once, and all outputs."""
    new = sum(one.prompt_tokens - common for one, common in zip(requests, common_tokens(requests), strict=True))
    return new + sum(request.output_tokens for request in requests)


def reuse(requests: Sequence[Request], *, before: Sequence[Request] = (), curve: bool) -> Reuse | None:
    """What a stage's requests could reuse of each other and of those sent `before`; None where no prompts begin alike.

    The `curve` over capacities is that of the stage alone.
    """
    common = list(common_tokens((*before, *requests)))[len(before) :]
    if not any(common):
        return None
    capacities = _capacities(requests) if curve else ()
    held = [list(held_tokens(requests, capacity)) for capacity in capacities]

    def shares(block_tokens: int, tokens: Iterable[Sequence[int]]) -> tuple[float, ...]:
        return tuple(round(_share(requests, found, block_tokens), 6) for found in tokens)

    return Reuse(
        block_tokens=BLOCKS,
        ratios=tuple(shares(size, [common])[0] for size in BLOCKS),
        capacities_tokens=capacities,
        lru_ratios=tuple(shares(size, held) for size in BLOCKS) if curve else (),
    )


def _capacities(requests: Sequence[Request]) -> tuple[int, ...]:
    """From one that holds the longest request to one that holds everything, in equal ratios."""
    low = max(request.prompt_tokens + request.output_tokens for request in requests)
    high = max(low, distinct_tokens(requests))
    steps = [round(low * (high / low) ** (step / (POINTS - 1))) for step in range(POINTS)]
    return tuple(dict.fromkeys(steps))
