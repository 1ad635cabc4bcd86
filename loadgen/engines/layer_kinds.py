"""Which layers of a model keep every token, a window of them, a state of constant size, or nothing: from its config.

Rules after the configuration classes of transformers 5.19 (models/*/configuration_*.py), which fill in what a published
config.json leaves out.
"""

from collections.abc import Mapping
from typing import Any, Literal

from loadgen.errors import UserError

MOST_LAYERS = 10_000

Kind = Literal["full", "sliding", "chunked", "state", "none"]

_NAMES: Mapping[str, Kind] = {
    "full_attention": "full",
    "attention": "full",
    "indexed_attention": "full",  # DeepSeek V3.2: every token is kept, some are read
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "state",
    "mamba": "state",
    "mamba2": "state",
    "recurrent": "state",
    "conv": "state",
    "moe": "none",
    "mlp": "none",
}
_LETTERS: Mapping[str, Kind] = {"*": "full", "M": "state", "-": "none", "E": "none"}  # Nemotron-H

# The last of every so many layers attends to everything, the others to a window.
_EVERY: Mapping[str, int] = {
    "gemma2": 2,
    "gpt_oss": 2,
    "cohere2": 4,
    "olmo3": 4,
    "gemma3n_text": 5,
    "gemma3_text": 6,
    "gemma4_text": 6,
}

_STATE_KEYS = (
    "mamba_d_state",
    "mamba_d_ssm",
    "ssm_cfg",
    "ssm_state_size",
    "state_size",
    "lru_width",
    "linear_num_value_heads",
    "linear_attn_alpha_factor",
)

_ALL_SLIDE = ("mistral", "ministral", "mixtral", "phi3", "phimoe", "starcoder2", "None")


def layer_kinds(config: Mapping[str, Any], layers: int | None, where: str) -> tuple[Kind, ...]:
    """The kind of each layer. `layers` is num_hidden_layers, None where the config lacks it. Raises UserError."""
    for rule in (_listed, _lettered, _indexed, _spaced):
        kinds = rule(config, layers, where)
        if kinds is not None:
            break
    else:
        kinds = _windowed(config, _wanted(layers, where), where)
    if layers is not None and len(kinds) != layers:
        raise UserError(f"{where}: num_hidden_layers: {layers}: should be {len(kinds)}, as many as its layers' kinds")
    if config.get("model_type") == "gemma4_text" and kinds:
        kinds = (*kinds[:-1], "full")
    shared = config.get("num_kv_shared_layers") or 0
    return tuple("none" if number >= len(kinds) - shared else kind for number, kind in enumerate(kinds))


def _wanted(layers: int | None, where: str) -> int:
    if layers is None:
        raise UserError(f"{where}: num_hidden_layers: missing: give --layers")
    if layers > MOST_LAYERS:
        raise UserError(f"{where}: num_hidden_layers: {layers}: should be at most {MOST_LAYERS}")
    return layers


def _listed(config: Mapping[str, Any], layers: int | None, where: str) -> tuple[Kind, ...] | None:
    key = next((key for key in ("layer_types", "layers_block_type") if config.get(key)), None)
    if key is None:
        return None
    names = config[key]
    unknown = sorted({str(name) for name in names if name not in _NAMES})
    if unknown:
        raise UserError(f"{where}: {key}: {unknown[0]}: not known; known: {', '.join(_NAMES)}")
    return tuple(_NAMES[name] for name in names)


def _lettered(config: Mapping[str, Any], layers: int | None, where: str) -> tuple[Kind, ...] | None:
    letters = config.get("hybrid_override_pattern")
    if not letters:
        return None
    unknown = sorted(set(letters) - set(_LETTERS))
    if unknown:
        raise UserError(f"{where}: hybrid_override_pattern: {unknown[0]}: not known; known: {' '.join(_LETTERS)}")
    return tuple(_LETTERS[letter] for letter in letters)


def _indexed(config: Mapping[str, Any], layers: int | None, where: str) -> tuple[Kind, ...] | None:
    """Bamba and LFM2 list the layers that attend; MiniMax has a 1 for each."""
    if config.get("attn_type_list"):
        return tuple("full" if one == 1 else "state" for one in config["attn_type_list"])
    indices = config.get("attn_layer_indices") or config.get("full_attn_idxs")
    if not indices:
        return None
    return tuple("full" if number in indices else "state" for number in range(_wanted(layers, where)))


def _spaced(config: Mapping[str, Any], layers: int | None, where: str) -> tuple[Kind, ...] | None:
    """Jamba: one of every `attn_layer_period`; Qwen3-Next: the last of every `full_attention_interval`."""
    period, offset = config.get("attn_layer_period"), config.get("attn_layer_offset", 0)
    interval = config.get("full_attention_interval") or (4 if config.get("model_type") == "qwen3_next" else None)
    if not period and interval:
        period, offset = interval, interval - 1
    if not period:
        return None
    return tuple("full" if number % period == offset else "state" for number in range(_wanted(layers, where)))


def _windowed(config: Mapping[str, Any], layers: int, where: str) -> tuple[Kind, ...]:
    """Models all of whose layers attend, some of them perhaps to the newest tokens alone."""
    state = next((key for key in _STATE_KEYS if config.get(key)), None)
    if state is not None:
        raise UserError(
            f"{where}: {state}: a model with state-space or linear layers, and nothing here tells which layers attend: "
            f"layer_types should"
        )
    model_type = str(config.get("model_type"))
    if model_type == "llama4_text":
        return _chunked(config, layers)
    every = config.get("sliding_window_pattern") or _EVERY.get(model_type)
    if isinstance(every, int) and every > 0:
        return tuple("full" if (number + 1) % every == 0 else "sliding" for number in range(layers))
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return tuple("full" for _ in range(layers))
    first = _first_sliding(config, model_type)
    return tuple("sliding" if number >= first else "full" for number in range(layers))


def _chunked(config: Mapping[str, Any], layers: int) -> tuple[Kind, ...]:
    """Llama 4: layers with rotary positions attend within a chunk."""
    every = config.get("no_rope_layer_interval") or 4
    rotary = config.get("no_rope_layers") or [(number + 1) % every != 0 for number in range(layers)]
    return tuple("chunked" if one else "full" for one in rotary)


def guessed_windows(config: Mapping[str, Any]) -> bool:
    """Whether all layers are taken to have the window for want of a rule or a list that tells which."""
    model_type = str(config.get("model_type"))
    told = any(config.get(key) for key in ("layer_types", "layers_block_type", "sliding_window_pattern"))
    ruled = model_type in (*_ALL_SLIDE, *_EVERY, "llama4_text") or model_type.startswith("qwen")
    return bool(config.get("sliding_window")) and config.get("use_sliding_window") is not False and not (told or ruled)


def _first_sliding(config: Mapping[str, Any], model_type: str) -> int:
    """Qwen's lower layers see everything, and its windows are off unless switched on."""
    if not model_type.startswith("qwen"):
        return 0
    first: int = config.get("max_window_layers", 28)
    return first if config.get("use_sliding_window") else 10**9
