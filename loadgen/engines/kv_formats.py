"""Bytes of KV cache per token, by format: what a capacity ratio should be before anything is measured.

`content` is one token's K and V of one KV head in one layer, metadata that lies beside the data included. Scales that
are kept once per layer (per-tensor fp8) do not grow with tokens and count as nothing. Sources: page size =
heads x block x state_content_bytes in vllm/v1/kv_cache_interface.py; the scales in vllm/v1/attention/backends/
triton_attn.py (one float32 per head and token, for K and for V), vllm/utils/torch_utils.py (nvfp4: one e4m3 scale per
16 values), vllm/model_executor/layers/quantization/turboquant/config.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KvFormat:
    """One format: bits of each K and V value, and bytes of metadata per head and token (K and V together).

    `block_values`: where each so many values share a one-byte scale. `keeps_edges`: the engine leaves the first and
    last two layers unquantized, so that the whole cache shrinks by less than `capacity_ratio` says.
    """

    key_bits: float
    value_bits: float
    metadata_bytes: float = 0.0
    block_values: int | None = None
    keeps_edges: bool = False

    def content_bytes(self, head_dim: int) -> float:
        """K and V of one token in one KV head of one layer, scales included."""
        data = head_dim * (self.key_bits + self.value_bits) / 8
        scales = 2 * head_dim / self.block_values if self.block_values else 0.0
        return data + scales + self.metadata_bytes


_BF16 = KvFormat(key_bits=16, value_bits=16)
_FP8 = KvFormat(key_bits=8, value_bits=8)
_BYTE_PER_TOKEN_HEAD = KvFormat(key_bits=8, value_bits=8, metadata_bytes=8)

KV_FORMATS: Mapping[str, KvFormat] = {
    "bfloat16": _BF16,
    "float16": _BF16,
    "fp8": _FP8,
    "fp8_e4m3": _FP8,
    "fp8_e5m2": _FP8,
    "fp8_inc": _FP8,
    "int8_per_token_head": _BYTE_PER_TOKEN_HEAD,
    "fp8_per_token_head": _BYTE_PER_TOKEN_HEAD,
    "int4_per_token_head": KvFormat(key_bits=4, value_bits=4, metadata_bytes=8),
    "nvfp4": KvFormat(key_bits=4, value_bits=4, block_values=16),
    "turboquant_k8v4": KvFormat(key_bits=8, value_bits=4, metadata_bytes=4, keeps_edges=True),
    "turboquant_4bit_nc": KvFormat(key_bits=4, value_bits=4, metadata_bytes=6, keeps_edges=True),
    "turboquant_k3v4_nc": KvFormat(key_bits=3, value_bits=4, metadata_bytes=6, keeps_edges=True),
    "turboquant_3bit_nc": KvFormat(key_bits=3, value_bits=3, metadata_bytes=6, keeps_edges=True),
}


def bytes_per_token(name: str, *, layers: int, kv_heads: int, head_dim: int) -> float | None:
    """Bytes of KV cache that one token of one sequence takes; None for a format that is not in the table.

    "auto" is not: it may be bf16 or whatever the checkpoint says. Valid for grouped-query attention where each layer
    keeps every token; not for MLA, nor for models with sliding-window or state-space layers.
    """
    form = KV_FORMATS.get(name)
    return None if form is None else layers * kv_heads * form.content_bytes(head_dim)


def capacity_ratio(base: str, test: str, *, head_dim: int) -> float | None:
    """How many times more tokens `test` should hold than `base` in the same memory; None where unknown.

    Independent of layers and heads. An upper bound where the format `keeps_edges`.
    """
    from_format, to_format = KV_FORMATS.get(base), KV_FORMATS.get(test)
    if from_format is None or to_format is None:
        return None
    return from_format.content_bytes(head_dim) / to_format.content_bytes(head_dim)


def capacity_ratio_range(base: str, test: str) -> tuple[float, float] | None:
    """`capacity_ratio` at head sizes 64 and 256, lower first: for a reader that does not know the model's head size.

    Today's models lie between them. None where a format is unknown.
    """
    ratios = [capacity_ratio(base, test, head_dim=head_dim) for head_dim in (64, 256)]
    known = sorted(ratio for ratio in ratios if ratio is not None)
    return (known[0], known[-1]) if known else None


def likely_capacity_ratio(base: str, test: str) -> float | None:
    """`capacity_ratio` at head size 128, that of most of today's models; None where a format is unknown.

    Off by at most 6 % at head sizes 64 and 256 for every format in the table.
    """
    return capacity_ratio(base, test, head_dim=128)
