"""Bytes of KV cache per token, by format: what a capacity ratio should be before anything is measured.

`content` is one token's K and V of one KV head in one layer, metadata that lies beside the data included. Scales that
are kept once per layer (per-tensor fp8) do not grow with tokens and count as nothing. Three tables: `KV_FORMATS` holds
vLLM's dtype names, which arms, profiles and servers speak of; `OTHER_FORMATS` other engines' as `engine:format`, and
`MLA_FORMATS` those that only multi-head latent attention has: `estimate` alone reads these.

Sources, vLLM 0.32: page size = heads x block x state_content_bytes in vllm/v1/kv_cache_interface.py; the scales in
vllm/v1/attention/backends/triton_attn.py (one float32 per head and token, for K and for V), vllm/utils/torch_utils.py
(nvfp4: one e4m3 scale per 16 values), vllm/v1/attention/ops/ultraquant/format.py (one byte per 32),
vllm/model_executor/layers/quantization/turboquant/config.py, vllm/v1/attention/backends/mla/flashmla_sparse.py and
vllm/model_executor/layers/attention/mla_attention.py (656 and 352 bytes). LMDeploy: lmdeploy/pytorch/engine/
cache_engine.py. llama.cpp: the blocks of ggml-common.h. transformers 5.19: cache_utils.py, QuantizedLayer with groups
of 64. KIVI: arXiv 2402.02750, scale and zero point of 16 bits per group.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

EDGE_LAYERS = 2  # at each end; turboquant/config.py, get_boundary_skip_layers

Keeping = Literal["window", "cycle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """The newest tokens that a format keeps in 16 bits.

    "window": always `tokens` of them. "cycle": they pile up to `tokens` and are then all quantized at once, which makes
    0 to `tokens` - 1 and, on average, half of that.
    """

    tokens: int
    keys: Keeping
    values: Keeping

    def most(self, keeping: Keeping) -> float:
        """How many are kept of a long sequence, on average."""
        return float(self.tokens) if keeping == "window" else (self.tokens - 1) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class KvFormat:
    """One format: bits of each K and V value, and bytes of metadata per head and token (K and V together).

    `block_values`: where each so many values of a head share `block_bytes` of scale (and zero point). `keeps_edges`:
    the engine leaves the first and last EDGE_LAYERS layers unquantized, so that the whole cache shrinks by less than
    `capacity_ratio` says. `in_place`: false where the cache is turned back into 16 bits before attention reads it.
    `latent`: it can also hold the one vector that multi-head latent attention keeps. `windows`: it also takes models
    with sliding-window layers.
    """

    key_bits: float
    value_bits: float
    metadata_bytes: float = 0.0
    block_values: int | None = None
    block_bytes: float = 1.0
    keeps_edges: bool = False
    residual: Residual | None = None
    in_place: bool = True
    latent: bool = False
    windows: bool = True

    def content_bytes(self, head_dim: int, value_dim: int | None = None) -> float:
        """K and V of one token in one KV head of one layer, scales included. V has `head_dim` values unless given."""
        values = head_dim if value_dim is None else value_dim
        data = (head_dim * self.key_bits + values * self.value_bits) / 8
        scales = (head_dim + values) / self.block_values * self.block_bytes if self.block_values else 0.0
        return data + scales + self.metadata_bytes

    @property
    def nominal_ratio(self) -> float:
        """How many times smaller than 16 bits the values alone are: what a format's name promises."""
        return 32 / (self.key_bits + self.value_bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentFormat:
    """A layout of one token's latent (512 values) and rotary part (64 values) in one layer of DeepSeek's MLA."""

    token_bytes: int
    nominal_ratio: float


LATENT_RANK, LATENT_ROPE = 512, 64  # the only widths that LatentFormats are made for

_BF16 = KvFormat(key_bits=16, value_bits=16, latent=True)
_FP8 = KvFormat(key_bits=8, value_bits=8, latent=True)
_ONE_BYTE = KvFormat(key_bits=8, value_bits=8)
_BYTE_PER_TOKEN_HEAD = KvFormat(key_bits=8, value_bits=8, metadata_bytes=8)
_NIBBLE_PER_TOKEN_HEAD = KvFormat(key_bits=4, value_bits=4, metadata_bytes=8)
_NVFP4 = KvFormat(key_bits=4, value_bits=4, block_values=16)
_MXFP8 = KvFormat(key_bits=8, value_bits=8, block_values=32)

KV_FORMATS: Mapping[str, KvFormat] = {
    "bfloat16": _BF16,
    "float16": _BF16,
    "fp8": _FP8,
    "fp8_e4m3": _FP8,
    "fp8_e5m2": _FP8,
    "fp8_inc": _FP8,
    "int8_per_token_head": _BYTE_PER_TOKEN_HEAD,
    "fp8_per_token_head": _BYTE_PER_TOKEN_HEAD,
    "int4_per_token_head": _NIBBLE_PER_TOKEN_HEAD,
    "nvfp4": _NVFP4,
    "nvfp4_4over6": _NVFP4,
    "turboquant_k8v4": KvFormat(key_bits=8, value_bits=4, metadata_bytes=4, keeps_edges=True),
    "turboquant_4bit_nc": KvFormat(key_bits=4, value_bits=4, metadata_bytes=6, keeps_edges=True),
    "turboquant_k3v4_nc": KvFormat(key_bits=3, value_bits=4, metadata_bytes=6, keeps_edges=True),
    "turboquant_3bit_nc": KvFormat(key_bits=3, value_bits=3, metadata_bytes=6, keeps_edges=True),
    "ultraquant_4bit": KvFormat(key_bits=4, value_bits=4, block_values=32, keeps_edges=True),
}


def _blocks_of_32(bits: float, block_bytes: float) -> KvFormat:
    return KvFormat(key_bits=bits, value_bits=bits, block_values=32, block_bytes=block_bytes)


def _transformers(bits: float) -> KvFormat:
    """The whole prompt is quantized at once and what follows piles up; every step turns all of it back to 16 bits."""
    residual = Residual(tokens=128, keys="cycle", values="cycle")
    return KvFormat(key_bits=bits, value_bits=bits, block_values=64, block_bytes=4, residual=residual, in_place=False,
                    windows=False)  # fmt: skip


def _kivi(bits: float, group: int) -> KvFormat:
    """Keys are quantized by channel, a whole residual at a time; values by token, and the newest ones are never."""
    residual = Residual(tokens=128, keys="cycle", values="window")
    return KvFormat(key_bits=bits, value_bits=bits, block_values=group, block_bytes=4, residual=residual, windows=False)


OTHER_FORMATS: Mapping[str, KvFormat] = {
    "tensorrt-llm:fp8": _ONE_BYTE,
    "tensorrt-llm:int8": _ONE_BYTE,
    "tensorrt-llm:nvfp4": _NVFP4,
    "sglang:fp8_e4m3": _ONE_BYTE,
    "sglang:fp8_e5m2": _ONE_BYTE,
    "sglang:mxfp8": _MXFP8,
    "sglang:nvfp4": _NVFP4,
    "lmdeploy:fp8": _ONE_BYTE,
    "lmdeploy:int8": _BYTE_PER_TOKEN_HEAD,
    "lmdeploy:int4": _NIBBLE_PER_TOKEN_HEAD,
    "llama.cpp:q8_0": _blocks_of_32(8, 2),
    "llama.cpp:q5_1": _blocks_of_32(5, 4),
    "llama.cpp:q5_0": _blocks_of_32(5, 2),
    "llama.cpp:q4_1": _blocks_of_32(4, 4),
    "llama.cpp:q4_0": _blocks_of_32(4, 2),
    "llama.cpp:iq4_nl": _blocks_of_32(4, 2),
    "transformers:int4": _transformers(4),
    "transformers:int2": _transformers(2),
    "kivi:int4_g32": _kivi(4, 32),
    "kivi:int2_g32": _kivi(2, 32),
    "kivi:int2_g64": _kivi(2, 64),
}

MLA_FORMATS: Mapping[str, LatentFormat] = {
    "fp8_ds_mla": LatentFormat(token_bytes=656, nominal_ratio=2.0),
    "nvfp4_ds_mla": LatentFormat(token_bytes=352, nominal_ratio=4.0),
}


def bytes_per_token(name: str, *, layers: int, kv_heads: int, head_dim: int) -> float | None:
    """Bytes of KV cache that one token of one sequence takes; None for a format that is not in KV_FORMATS.

    "auto" is not: it may be bf16 or whatever the checkpoint says. Valid for grouped-query attention where each layer
    keeps every token; `kv_held` counts MLA, sliding windows, edge layers and residuals.
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


def residual_ratio(tokens: float, bits: float, *, keys_kept: float, values_kept: float) -> float:
    """How many times smaller than 16 bits a sequence of `tokens` is, of which the newest are kept in 16 bits.

    `bits` per quantized value, metadata included. With as many keys as values kept (r) it is
    16 n / (b (n - r) + 16 r).
    """
    kept = (min(keys_kept, tokens) + min(values_kept, tokens)) / 2
    return 16 * tokens / (bits * (tokens - kept) + 16 * kept)
