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
    """Tokens held, and requests in flight, at the speeds assumed."""

    assumed: Speeds
    tokens: Held
    in_flight: Held


def resident(columns: Columns, speeds: Speeds) -> Resident:
    """Of the trace replayed at its own times."""
    size = columns.input_tokens + columns.output_tokens
    stay_s = columns.input_tokens / speeds.prefill_tokens_per_s + columns.output_tokens * speeds.decode_gap_s
    return Resident(
        assumed=speeds,
        tokens=_held(columns.at_s, stay_s, size),
        in_flight=_held(columns.at_s, stay_s, np.ones_like(size)),
    )


def held_over_time(at_s: Floats, stay_s: Floats, size: Ints) -> tuple[Floats, Ints]:
    """Instants, and what is held from each on. What ends at an instant is gone before what begins then."""
    instants = np.concatenate((at_s + stay_s, at_s))
    moves = np.concatenate((-size, size))
    order = np.argsort(instants, kind="stable")
    return instants[order], np.cumsum(moves[order])


def _held(at_s: Floats, stay_s: Floats, size: Ints) -> Held:
    instants, held = held_over_time(at_s, stay_s, size)
    lasts_s = np.diff(instants)
    by_size = np.argsort(held[:-1], kind="stable")
    passed_s = np.cumsum(lasts_s[by_size])
    p50, p99 = (float(held[:-1][by_size][np.searchsorted(passed_s, share * passed_s[-1])]) for share in (0.5, 0.99))
    return Held(mean=float((held[:-1] * lasts_s).sum() / lasts_s.sum()), p50=p50, p99=p99, max=float(held.max()))
