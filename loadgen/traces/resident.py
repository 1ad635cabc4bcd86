"""How much KV cache a trace asks for at stated speeds, if nothing queues. Pure.

A request stays prompt / prefill speed + output x gap, and holds prompt + output tokens all that time: the worst case,
without sharing of prefixes. The default speeds are a yardstick, not a server.
"""

import msgspec
import numpy as np

from loadgen.traces.columns import Columns, Floats
from loadgen.traces.reuse import Ints


class Speeds(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a server is assumed to be."""

    prefill_tokens_per_s: float = 10_000.0
    decode_gap_s: float = 0.020


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Of a quantity over time, from the first arrival to the last end."""

    mean: float
    p50: float
    p99: float
    max: float


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens held, and requests in flight, at the speeds assumed; `over_ratio`: of the time, above the capacity."""

    assumed: Speeds
    tokens: Held
    in_flight: Held
    capacity_tokens: int | None = None
    over_ratio: float | None = None


def resident(columns: Columns, speeds: Speeds, capacity_tokens: int | None = None) -> Resident:
    """Of the trace replayed at its own times."""
    stay_s = _stay_s(columns, speeds)
    instants, tokens = held_tokens(columns, speeds)
    over_s = np.diff(instants)[tokens[:-1] > capacity_tokens].sum() if capacity_tokens is not None else None
    return Resident(
        assumed=speeds,
        tokens=_held(instants, tokens),
        in_flight=_held(*_over_time(columns.at_s, stay_s, np.ones_like(columns.input_tokens))),
        capacity_tokens=capacity_tokens,
        over_ratio=None if over_s is None else float(over_s / (instants[-1] - instants[0])),
    )


def held_tokens(columns: Columns, speeds: Speeds) -> tuple[Floats, Ints]:
    """Instants in order, and the tokens held from each on."""
    return _over_time(columns.at_s, _stay_s(columns, speeds), columns.input_tokens + columns.output_tokens)


def _stay_s(columns: Columns, speeds: Speeds) -> Floats:
    return columns.input_tokens / speeds.prefill_tokens_per_s + columns.output_tokens * speeds.decode_gap_s


def _over_time(at_s: Floats, stay_s: Floats, size: Ints) -> tuple[Floats, Ints]:
    """What ends at an instant is gone before what begins then."""
    instants = np.concatenate((at_s + stay_s, at_s))
    moves = np.concatenate((-size, size))
    order = np.argsort(instants, kind="stable")
    return instants[order], np.cumsum(moves[order])


def _held(instants: Floats, held: Ints) -> Held:
    lasts_s = np.diff(instants)
    by_size = np.argsort(held[:-1], kind="stable")
    passed_s = np.cumsum(lasts_s[by_size])
    p50, p99 = (float(held[:-1][by_size][np.searchsorted(passed_s, share * passed_s[-1])]) for share in (0.5, 0.99))
    return Held(mean=float((held[:-1] * lasts_s).sum() / lasts_s.sum()), p50=p50, p99=p99, max=float(held.max()))
