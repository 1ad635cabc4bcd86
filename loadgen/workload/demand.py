"""How many KV-cache tokens a stage will hold, before anything is sent. Pure.

A request holds its prompt and what it has generated so far. `peak_tokens` is the worst case: every request in flight at
its full length (prompt + output). `mean_tokens` weights by time: the whole prompt from admission on, and half of the
output on average while decoding. Tokens of a prefix that several requests in flight share are counted once in the
peak (a server with prefix caching holds them once), and in each request in the mean. Engines hand out whole blocks:
with `block_tokens` above 1 each request is rounded up to them.

Closed loop: in flight are `concurrency` consecutive requests; the peak is the largest such sum and assumes nothing.
Open loop: how long a request stays depends on the server, so speeds are assumed (`Speeds`) and queueing is not: a
saturated server holds more. The mean is weighted with the same speeds in both.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loadgen.records import Request, StagePlan
from loadgen.workload.prompts import UNIQUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """How fast a server is assumed to be where the plan alone does not tell what is in flight."""

    prefill_tokens_per_s: float = 10_000.0
    decode_gap_s: float = 0.020

    def stay_s(self, request: Request) -> float:
        """From admission to the last token: prompt / prefill speed + output x gap."""
        return request.prompt_tokens / self.prefill_tokens_per_s + request.output_tokens * self.decode_gap_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one stage asks of the KV cache."""

    stage: str
    in_flight: int  # at the peak
    peak_tokens: int
    mean_tokens: float
    request_tokens: float  # mean full length of a request
    assumed: Speeds

    def held(self, capacity_tokens: int) -> int:
        """How many of the `in_flight` requests, at their mean full length, a cache of `capacity_tokens` holds."""
        if self.peak_tokens <= capacity_tokens:
            return self.in_flight
        return min(self.in_flight, int(capacity_tokens / self.request_tokens))


def demand(stage: StagePlan, speeds: Speeds, block_tokens: int = 1) -> Demand:
    """The demand of a stage's measured requests (at least one)."""
    requests = stage.requests
    closed = stage.spec.concurrency
    moves = _open_moves(requests, speeds) if closed is None else _closed_moves(requests, closed)
    in_flight, peak_tokens = _peak(moves, block_tokens)
    held_s = sum(_held_token_seconds(request, speeds, block_tokens) for request in requests)
    stay_s = sum(speeds.stay_s(request) for request in requests)
    if closed is not None:
        busy = min(closed, len(requests)) / stay_s
    else:
        busy = 1 / max((request.due_s or 0.0) + speeds.stay_s(request) for request in requests)
    return Demand(
        stage=stage.spec.name,
        in_flight=in_flight,
        peak_tokens=peak_tokens,
        mean_tokens=held_s * busy,
        request_tokens=sum(_full_tokens(request, block_tokens) for request in requests) / len(requests),
        assumed=speeds,
    )


def _full_tokens(request: Request, block_tokens: int) -> int:
    return -(-(request.prompt_tokens + request.output_tokens) // block_tokens) * block_tokens


def _held_token_seconds(request: Request, speeds: Speeds, block_tokens: int) -> float:
    decode_s = request.output_tokens * speeds.decode_gap_s
    base_tokens = request.prompt_tokens + (block_tokens - 1) / 2  # the last block is half empty on average
    return base_tokens * speeds.stay_s(request) + decode_s * request.output_tokens / 2


Move = tuple[bool, Request]  # (enters, who)


def _closed_moves(requests: tuple[Request, ...], concurrency: int) -> Iterator[Move]:
    for position, request in enumerate(requests):
        if position >= concurrency:
            yield False, requests[position - concurrency]
        yield True, request


def _open_moves(requests: tuple[Request, ...], speeds: Speeds) -> Iterator[Move]:
    moves = []
    for position, request in enumerate(requests):
        due_s = request.due_s or 0.0
        moves += [(due_s, 1, position), (due_s + speeds.stay_s(request), 0, position)]
    for _, enters, position in sorted(moves):
        yield bool(enters), requests[position]


def _peak(moves: Iterable[Move], block_tokens: int) -> tuple[int, int]:
    """Most requests in flight, and most tokens held; a run that several of them share counts once."""
    users: Counter[tuple[str, int]] = Counter()
    in_flight = tokens = most_in_flight = most_tokens = 0
    for enters, request in moves:
        step = 1 if enters else -1
        in_flight += step
        tokens += step * (_full_tokens(request, block_tokens) - request.prompt_tokens)
        for run in request.runs:
            if run.key.startswith(UNIQUE):
                tokens += step * run.tokens
                continue
            shared = (run.key, run.tokens)
            users[shared] += step
            tokens += step * run.tokens * (users[shared] == (1 if enters else 0))
        most_in_flight, most_tokens = max(most_in_flight, in_flight), max(most_tokens, tokens)
    return most_in_flight, most_tokens
