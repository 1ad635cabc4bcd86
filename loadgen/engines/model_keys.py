"""The keys of a config.json that decide its KV cache, each with what it should be."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from loadgen.errors import UserError

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "multi_query_group_num")
HEAD_DIM = ("head_dim", "kv_channels")
HIDDEN = ("hidden_size", "n_embd", "d_model")
MAX_TOKENS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length")


class _Kind(NamedTuple):
    what: str
    fits: Callable[[Any], bool]


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_COUNT = _Kind("a whole number above 0", lambda value: _whole(value) and value > 0)
_COUNT_OR_NONE = _Kind("a whole number, 0 for none", lambda value: _whole(value) and value >= 0)
_COUNTS = _Kind(
    "a whole number above 0, or a list of one per layer",
    lambda value: all(_COUNT.fits(one) for one in (value if isinstance(value, list) and value else [value])),
)
_NUMBERS = _Kind("a list of whole numbers", lambda value: isinstance(value, list) and all(_whole(one) for one in value))
_NAMES = _Kind(
    "a list with one kind per layer",
    lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
)
_FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
_LETTERS = _Kind("a text with one letter per layer", lambda value: isinstance(value, str))
_BY_LAYER = _Kind(
    "an object of objects, by layer",
    lambda value: isinstance(value, dict) and all(isinstance(one, dict) for one in value.values()),
)

_KINDS: Mapping[str, _Kind] = {
    **dict.fromkeys((*LAYERS, *HEADS, *HEAD_DIM, *HIDDEN, *MAX_TOKENS), _COUNT),
    **dict.fromkeys(KV_HEADS, _COUNTS),
    **dict.fromkeys(("v_head_dim", "qk_rope_head_dim", "global_head_dim", "num_global_key_value_heads"), _COUNT),
    **dict.fromkeys(("index_head_dim", "no_rope_layer_interval", "attention_chunk_size"), _COUNT),
    **dict.fromkeys(("attn_layer_period", "full_attention_interval", "vocab_size"), _COUNT),
    **dict.fromkeys(("kv_lora_rank", "index_topk", "attn_layer_offset", "max_window_layers"), _COUNT_OR_NONE),
    **dict.fromkeys(("num_kv_shared_layers", "sliding_window", "moe_intermediate_size"), _COUNT_OR_NONE),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "num_experts_per_tok"), _COUNT_OR_NONE),
    **dict.fromkeys(("n_shared_experts", "first_k_dense_replace", "decoder_sparse_step"), _COUNT_OR_NONE),
    **dict.fromkeys(("q_lora_rank", "qk_nope_head_dim"), _COUNT_OR_NONE),
    "intermediate_size": _COUNTS,
    "sliding_window_pattern": _Kind(
        "a whole number above 0", lambda value: isinstance(value, str) or _COUNT.fits(value)
    ),
    **dict.fromkeys(("attn_layer_indices", "full_attn_idxs", "attn_type_list", "no_rope_layers"), _NUMBERS),
    **dict.fromkeys(("layer_types", "layers_block_type"), _NAMES),
    **dict.fromkeys(("use_sliding_window", "attention_k_eq_v", "is_encoder_decoder"), _FLAG),
    **dict.fromkeys(("multi_query", "new_decoder_architecture"), _FLAG),
    "hybrid_override_pattern": _LETTERS,
    "per_layer_config": _BY_LAYER,
}


def checked(text: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The keys that are not null. Raises UserError, one line for each that is not what it should be."""
    given = {key: value for key, value in text.items() if value is not None}
    wrong = [
        f"{where}: {key}: {_short(value)}: should be {_KINDS[key].what}"
        for key, value in given.items()
        if key in _KINDS and not _KINDS[key].fits(value)
    ]
    if wrong:
        raise UserError(*wrong)
    for own in (given.get("per_layer_config") or {}).values():
        checked(own, f"{where}: per_layer_config")
    return given


def _short(value: Any) -> str:
    told = repr(value)
    return told if len(told) <= 60 else f"{told[:57]}..."
