"""How many KV-cache tokens a stage will hold, before anything is sent. Pure.

Who is in flight together depends on how fast a server is, so two speeds are assumed (`Speeds`) and the stage is played
through: a closed loop admits the next session when one ends, an open loop admits each request when it is due; one that
waits for others is admitted when they have ended and its client has thought. Queueing in the server is not modelled: a
saturated server holds as much as it can, and an open loop then lasts longer.

A request holds its prompt from admission on and what it has generated so far. `peak_tokens` takes every request in
flight at its full length (prompt + output): the worst case. `mean_tokens` is the average over time, from the first
admission to the last. Tokens of a prefix that several requests in flight share count once, as a server with prefix
caching holds them once. Engines hand out whole blocks: with `block_tokens` above 1 each request is rounded up to them.
"""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from loadgen.records import Request, StagePlan, sessions
from loadgen.workload.prompts import UNIQUE
from loadgen.workload.reuse import reused_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """How fast a server is assumed to be."""

    prefill_tokens_per_s: float = 10_000.0
    decode_gap_s: float = 0.020

    def prefill_s(self, request: Request) -> float:
        """From admission to the first token."""
        return request.prompt_tokens / self.prefill_tokens_per_s

    def stay_s(self, request: Request) -> float:
        """From admission to the last token: prompt / prefill speed + output x gap."""
        return self.prefill_s(request) + request.output_tokens * self.decode_gap_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one stage asks of the KV cache. `in_flight` is at the instant of the peak."""

    stage: str
    in_flight: int
    peak_tokens: int
    mean_tokens: float
    reused_ratio: float  # share of prompt tokens that an unlimited prefix cache would have seen before, in this stage
    assumed: Speeds
    lengths_tokens: tuple[int, ...]  # prompt + output in whole blocks, of each request in flight at the peak

    def held(self, capacity_tokens: int) -> int:
        """How many of the `in_flight` requests of the peak a cache of `capacity_tokens` holds, at their mean size."""
        return min(self.in_flight, capacity_tokens * self.in_flight // self.peak_tokens)


class _Stay(NamedTuple):
    start_s: float
    end_s: float
    request: Request


def demand(stage: StagePlan, speeds: Speeds, block_tokens: int = 1) -> Demand:
    """The demand of a stage's measured requests (at least one)."""
    stays = _stays(stage.requests, stage.spec.concurrency, speeds)
    last_s = max(stay.start_s for stay in stays)
    until_s = last_s if last_s > 0 else max(stay.end_s for stay in stays)
    lengths, peak_tokens, shared_token_s = _swept(stays, block_tokens, until_s)
    own_token_s = sum(_own_token_s(stay, speeds, block_tokens, until_s) for stay in stays)
    return Demand(
        stage=stage.spec.name,
        in_flight=len(lengths),
        peak_tokens=peak_tokens,
        mean_tokens=(own_token_s + shared_token_s) / until_s,
        reused_ratio=reused_ratio(stage.requests),
        assumed=speeds,
        lengths_tokens=lengths,
    )


def met(
    requests: Sequence[Request], concurrency: int | None, duration_s: float | None, speeds: Speeds | None = None
) -> list[Request]:
    """The requests in the order in which a server meets them; those that no time is left for are not among them.

    Sessions that go on at once take turns: between two turns of one, a cache meets turns of all the others.
    """
    stays = sorted(_stays(requests, concurrency, speeds or Speeds()), key=lambda stay: stay.start_s)
    return [stay.request for stay in stays if duration_s is None or stay.start_s < duration_s]


def _stays(requests: Sequence[Request], concurrency: int | None, speeds: Speeds) -> list[_Stay]:
    if concurrency is None:
        return _played(requests, speeds, 0.0)
    groups = sessions(requests)
    free_s = [0.0] * min(concurrency, len(groups))
    stays = []
    for session in groups:
        found = _played(session, speeds, free_s[0])
        stays += found
        heapq.heapreplace(free_s, max(stay.end_s for stay in found))
    return stays


def _played(requests: Sequence[Request], speeds: Speeds, start_s: float) -> list[_Stay]:
    """Each admitted when it is due after `start_s`, when those that it waits for have ended and its client thought."""
    ends: dict[int, float] = {}
    stays = []
    for request in requests:
        at_s = start_s + (request.due_s or 0.0)
        if request.after:
            at_s = max(at_s, max(ends[index] for index in request.after) + request.think_s)
        stays.append(_Stay(at_s, at_s + speeds.stay_s(request), request))
        ends[request.index] = stays[-1].end_s
    return stays


def _shared_tokens(request: Request) -> int:
    return sum(run.tokens for run in request.runs if not run.key.startswith(UNIQUE))


def _own_token_s(stay: _Stay, speeds: Speeds, block_tokens: int, until_s: float) -> float:
    """Integral over time of what the request alone holds: its own prompt, and its output as it grows."""
    held_s = max(0.0, min(stay.end_s, until_s) - stay.start_s)
    growing_s = max(0.0, held_s - speeds.prefill_s(stay.request))
    # The last block is half empty on average.
    own_tokens = stay.request.prompt_tokens - _shared_tokens(stay.request) + (block_tokens - 1) / 2
    return own_tokens * held_s + growing_s**2 / (2 * speeds.decode_gap_s)


def _swept(stays: list[_Stay], block_tokens: int, until_s: float) -> tuple[tuple[int, ...], int, float]:
    """Lengths in flight at the peak, the peak's tokens, and the integral of shared tokens up to `until_s`."""
    moves = [(stay.start_s, 1, number) for number, stay in enumerate(stays)]
    moves += [(stay.end_s, -1, number) for number, stay in enumerate(stays)]
    moves.sort()
    users: Counter[tuple[str, int]] = Counter()
    in_flight = own = shared = 0
    peak, peak_move, shared_token_s, before_s = (0, 0), moves[0], 0.0, 0.0
    for move in moves:
        at_s, step, number = move
        shared_token_s += shared * max(0.0, min(at_s, until_s) - before_s)
        before_s = min(at_s, until_s)
        request = stays[number].request
        in_flight += step
        own += step * (_full_tokens(request, block_tokens) - _shared_tokens(request))
        shared += step * _moved(users, request, step)
        if (own + shared, in_flight) > peak:
            peak, peak_move = (own + shared, in_flight), move
    return _lengths(stays, peak_move, block_tokens), peak[0], shared_token_s


def _lengths(stays: list[_Stay], move: tuple[float, int, int], block_tokens: int) -> tuple[int, ...]:
    """Of those that have begun with or before this move and not ended by then."""
    return tuple(
        _full_tokens(stay.request, block_tokens)
        for number, stay in enumerate(stays)
        if (stay.start_s, 1, number) <= move < (stay.end_s, -1, number)
    )


def _full_tokens(request: Request, block_tokens: int) -> int:
    return -(-(request.prompt_tokens + request.output_tokens) // block_tokens) * block_tokens


def _moved(users: Counter[tuple[str, int]], request: Request, step: int) -> int:
    """Tokens of shared runs that come with their first holder or go with their last one."""
    moved = 0
    for run in request.runs:
        if not run.key.startswith(UNIQUE):
            before = users[run.key, run.tokens]
            users[run.key, run.tokens] = before + step
            moved += run.tokens if 0 in (before, before + step) else 0
    return moved
