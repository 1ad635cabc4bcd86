"""How long one engine step takes: a sum of terms, each with its coefficient, so that each cause can be planted."""

from dataclasses import dataclass
from typing import NamedTuple


class Work(NamedTuple):
    """What one step has to do, summed over the sequences scheduled in it."""

    sequences: int = 0  # that yield a token at the end of the step
    new_tokens: int = 0  # scheduled: decoded and prefilled, all stored in the cache
    prefill_tokens: int = 0  # of those, the ones that are not a single decode step
    context_tokens: int = 0  # read from the cache: tokens computed before this step
    residual_tokens: int = 0  # of those, the ones kept in 16 bits (a residual window)
    prefill_pairs: float = 0.0  # sum over prefills of new tokens x (context before + new tokens / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """The coefficients of one arm: times in s, sizes in bytes, bandwidths in bytes/s.

    seconds = fixed_s
            + weight_bytes / weight_bandwidth                                     (every step reads the weights once)
            + (context tokens x bytes per token) / attention_bandwidth x penalty  (the cache is read; >1 = not in place)
            + new tokens x token_s + sequences x sequence_s                       (compute; sampling and streaming)
            + prefill_pairs x prefill_pair_s                                      (attention's quadratic term)
            + conversion_step_s + new tokens x conversion_stored_s + prefill tokens x conversion_prefill_s

    Decode at one stream is then linear in context: the model of https://blog.vllm.ai (2026-04-22, fp8 KV cache), which
    gives intercept and slope for H100 and B200.
    """

    fixed_s: float
    weight_bytes: float = 0.0
    weight_bandwidth_bytes_per_s: float = 1.0
    bytes_per_token: float
    residual_bytes_per_token: float = 0.0  # of a token inside the residual window (16 bits)
    attention_bandwidth_bytes_per_s: float
    read_penalty: float = 1.0
    token_s: float = 0.0
    sequence_s: float = 0.0
    prefill_pair_s: float = 0.0
    conversion_step_s: float = 0.0
    conversion_stored_s: float = 0.0
    conversion_prefill_s: float = 0.0

    @property
    def intercept_s(self) -> float:
        """One-stream decode at context 0: what a step of one sequence costs before any cached token is read."""
        per_token = self.token_s + self.sequence_s + self.conversion_stored_s
        return self.fixed_s + self.weight_bytes / self.weight_bandwidth_bytes_per_s + self.conversion_step_s + per_token

    @property
    def slope_s_per_token(self) -> float:
        """What each cached token adds to a decode step, outside a residual window."""
        return self.bytes_per_token / self.attention_bandwidth_bytes_per_s * self.read_penalty

    def seconds(self, work: Work) -> float:
        """The step's duration, before noise."""
        quantized = work.context_tokens - work.residual_tokens
        read = (
            quantized * self.bytes_per_token * self.read_penalty + work.residual_tokens * self.residual_bytes_per_token
        )
        return (
            self.fixed_s
            + self.weight_bytes / self.weight_bandwidth_bytes_per_s
            + read / self.attention_bandwidth_bytes_per_s
            + work.new_tokens * (self.token_s + self.conversion_stored_s)
            + work.sequences * self.sequence_s
            + work.prefill_pairs * self.prefill_pair_s
            + self.conversion_step_s
            + work.prefill_tokens * self.conversion_prefill_s
        )


def break_even_tokens(base: StepCost, test: StepCost) -> float | None:
    """The context above which a one-stream decode step of `test` is faster: None where none is, 0 where all are."""
    dearer = test.intercept_s - base.intercept_s
    gained = base.slope_s_per_token - test.slope_s_per_token
    if gained > 0:
        return max(0.0, dearer / gained)
    return 0.0 if dearer < 0 and gained == 0 else None
