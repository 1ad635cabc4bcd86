"""What a trace's figures say of KV-cache quantization before anything runs, in the words of the four causes. Pure."""

from collections.abc import Iterator

from loadgen.quantities import text
from loadgen.traces.describe import Description

WORTH_RATIO = 0.01  # a share of prompt tokens from which reuse is worth a word


def outlook(of: Description) -> tuple[str, ...]:
    """Plain sentences on capacity, on reuse of prefixes and on context; with a capacity: whether it binds."""
    return (*_capacity(of), *_reuse(of), _context(of))


def _capacity(of: Description) -> Iterator[str]:
    held, capacity = of.resident.tokens, of.resident.capacity_tokens
    speeds = of.resident.assumed
    needs = (
        f"Needs {text(held.mean, 'tokens')} of KV cache on average and {held.max:,.0f} at its peak, at "
        f"{speeds.prefill_tokens_per_s:,.0f} prefill tokens/s and {text(speeds.decode_gap_s, 's')} per output token, "
        "without queueing and sharing"
    )
    if capacity is None:
        yield (f"{needs}: in a cache of that size or more capacity does not bind, and {_unused(of)}.")
    elif held.max <= capacity:
        yield (
            f"{needs}: {capacity:,} tokens hold {capacity / held.max:.3g} times the peak, so capacity does not bind, "
            f"and {_unused(of)}."
        )
    else:
        yield (
            f"{needs}: {capacity:,} tokens are too few {text(of.resident.over_ratio, 'ratio')} of the time; capacity "
            "binds then, and a cache that holds more tokens lets more requests run at once."
        )


def _unused(of: Description) -> str:
    if of.reuse is not None and of.reuse.shared_ratio >= WORTH_RATIO:
        return "memory that quantization frees only keeps more prefixes"
    return "memory that quantization frees stays unused (cause: unused memory)"


def _reuse(of: Description) -> Iterator[str]:
    reuse = of.reuse
    if reuse is None:
        shared = of.sessions.shared_ratio if of.sessions else None
        if shared:
            yield f"Sessions find {text(shared, 'ratio')} of their prompt tokens in what they sent before."
        return
    total = f"A prefix cache without limit finds {text(reuse.shared_ratio, 'ratio')} of the prompt tokens"
    capacity = of.resident.capacity_tokens
    if capacity is None or not reuse.shared_ratio:
        yield f"{total}."
        return
    now, doubled = reuse.at(capacity), reuse.at(2 * capacity)
    yield (
        f"{total}, one of {capacity:,} tokens {text(now, 'ratio')}, and twice as many {text(doubled, 'ratio')}: what a "
        "cache that holds more saves in prefill."
    )


def _context(of: Description) -> str:
    return (
        f"An output token reads {text(of.read_tokens, 'tokens')} of KV cache on average: below the break-even context "
        "of the engine a quantized cache makes decoding slower (cause: short context)."
    )
