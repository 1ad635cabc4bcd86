"""What a smaller KV cache could bring to a plan's traffic, before any server runs. Pure.

Memory: what the stage's peak holds in each format, beside what the GPU has left for a cache. Time: a decode step reads
the weights and, for each sequence, its cache. If a step were nothing but these reads, all at one speed, a format that
cuts the cache's share of the bytes, s, to s / r could make it 1 / (1 - s + s / r) times as fast (Amdahl). It is a
bound for that, not a forecast: launches, compute and conversion come on top, and a kernel may read less than it could.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.engines.kv_held import Held, Numbers
from loadgen.engines.model_weights import Weights
from loadgen.errors import UserError
from loadgen.records import StagePlan
from loadgen.workload.demand import Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One GPU's memory, and what is left of it for the cache. Blocks of `block_tokens` are handed out whole."""

    memory_bytes: float
    utilization: float
    weights_bytes: float
    reserved_bytes: float = 0.0
    block_tokens: int = 1

    @property
    def cache_bytes(self) -> float:
        """Left for the cache; `check` has seen that it is something."""
        return self.memory_bytes * self.utilization - self.weights_bytes - self.reserved_bytes

    def check(self) -> None:
        """Raises UserError where nothing is left for the cache."""
        if self.cache_bytes <= 0:
            least = (self.weights_bytes + self.reserved_bytes) / self.utilization
            raise UserError(
                f"--memory: {self.memory_bytes:,.0f} bytes at utilization {self.utilization:g} leave no room for a "
                f"cache beside {self.weights_bytes:,.0f} bytes of weights and {self.reserved_bytes:,.0f} reserved: "
                f"should be above {least:,.0f}"
            )

    def tokens(self, held: Held, context: int) -> int:
        """That fit, in sequences of `context` tokens each: whole blocks."""
        whole = -(-context // self.block_tokens) * self.block_tokens
        sequences = self.cache_bytes / float(held.sequence_bytes(whole))
        return int(sequences * whole / self.block_tokens) * self.block_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decode step of `streams` sequences: bytes moved at the least, and the bound against the base format."""

    streams: int
    weights_bytes: float
    cache_bytes: float
    cache_ratio: float  # the cache's share of the bytes
    most_speedup: float  # of this format against the base, at this number of streams
    halved_speedup: float  # the bound for a cache of half these bytes, whatever the format

    @property
    def bytes(self) -> float:
        """All that is moved."""
        return self.weights_bytes + self.cache_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class InFormat:
    """One stage in one format. `held` of the stage's requests at its peak; None where the memory is not known."""

    format: str
    peak_bytes: float
    mean_bytes: float
    real_ratio: float  # base bytes / these, at the peak
    of_cache_ratio: float | None = None
    held: int | None = None
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEstimate:
    """One stage in every format, the base first. `context_tokens`: mean over its decode steps."""

    stage: str
    in_flight: int
    peak_tokens: int
    mean_tokens: float
    request_tokens: int  # mean of those in flight at the peak, prompt + output
    context_tokens: float
    formats: tuple[InFormat, ...]

    @property
    def base(self) -> InFormat:
        """The first format."""
        return self.formats[0]


def step(base: Held, test: Held, contexts: Numbers, shares: Numbers, streams: int, weights: Weights) -> Step:
    """A mean decode step: `shares` says how often each of `contexts` occurs (they sum to 1)."""
    weights_bytes = weights.step_bytes(streams)
    of_base, of_test = (streams * float(one.step_bytes(contexts) @ shares) for one in (base, test))
    all_bytes = weights_bytes + of_test
    return Step(
        streams=streams,
        weights_bytes=weights_bytes,
        cache_bytes=of_test,
        cache_ratio=of_test / all_bytes,
        most_speedup=(weights_bytes + of_base) / all_bytes,
        halved_speedup=1 / (1 - of_test / all_bytes / 2),
    )


def at_context(formats: Sequence[Held], context: int, weights: Weights | None) -> tuple[Step, ...]:
    """One stream at one context in each format, the base first; nothing where the weights are not known."""
    if weights is None:
        return ()
    once = np.ones(1)
    return tuple(step(formats[0], one, np.array([float(context)]), once, 1, weights) for one in formats)


def stage_estimate(
    stage: StagePlan, demand: Demand, formats: Sequence[Held], budget: Budget | None, weights: Weights | None
) -> StageEstimate:
    """One stage: what its peak holds, what of it fits, what its steps move. `demand` is the same stage's."""
    contexts, shares = _contexts(stage)
    base_bytes = _peak_bytes(formats[0], demand)
    streams = _streams(stage, demand, _held(base_bytes, demand, budget))
    rows = []
    for one in formats:
        peak_bytes = _peak_bytes(one, demand)
        steps = [step(formats[0], one, contexts, shares, count, weights) for count in streams] if weights else []
        rows.append(
            InFormat(
                format=one.name,
                peak_bytes=peak_bytes,
                mean_bytes=peak_bytes * demand.mean_tokens / demand.peak_tokens,
                real_ratio=base_bytes / peak_bytes,
                of_cache_ratio=peak_bytes / budget.cache_bytes if budget else None,
                held=_held(peak_bytes, demand, budget),
                steps=tuple(steps),
            )
        )
    return StageEstimate(
        stage=demand.stage,
        in_flight=demand.in_flight,
        peak_tokens=demand.peak_tokens,
        mean_tokens=demand.mean_tokens,
        request_tokens=round(sum(demand.lengths_tokens) / demand.in_flight),
        context_tokens=float(contexts @ shares),
        formats=tuple(rows),
    )


def _peak_bytes(one: Held, demand: Demand) -> float:
    return one.together_bytes(demand.lengths_tokens, demand.peak_tokens)


def _held(peak_bytes: float, demand: Demand, budget: Budget | None) -> int | None:
    """How many of the requests in flight at the peak the cache holds, at their mean size."""
    return None if budget is None else min(demand.in_flight, int(budget.cache_bytes * demand.in_flight / peak_bytes))


def _streams(stage: StagePlan, demand: Demand, held: int | None) -> tuple[int, ...]:
    """One, and as many as the stage keeps in flight or, if fewer, as the base format holds at once."""
    most = demand.in_flight if stage.spec.concurrency is None else min(stage.spec.concurrency, len(stage.requests))
    return tuple(dict.fromkeys((1, max(1, most if held is None else min(most, held)))))


def _contexts(stage: StagePlan) -> tuple[Numbers, Numbers]:
    """The context in the middle of each request's decode, and the share of all decode steps that are its own."""
    outputs = np.array([request.output_tokens for request in stage.requests], dtype=np.float64)
    prompts = np.array([request.prompt_tokens for request in stage.requests], dtype=np.float64)
    return prompts + outputs / 2, outputs / outputs.sum()
