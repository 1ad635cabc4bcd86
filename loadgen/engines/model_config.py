"""A model's config.json -> its `ModelShape`. Names of keys after transformers; nothing is downloaded."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadgen.engines.layer_kinds import Kind, guessed_windows, layer_kinds
from loadgen.engines.model_keys import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, MAX_TOKENS, checked
from loadgen.engines.model_shape import Layer, ModelShape
from loadgen.errors import UserError

NESTED = ("text_config", "llm_config", "language_config")

_OUTER = ("quantization_config", "is_encoder_decoder", "tie_word_embeddings")  # true of the part within too

# What the configuration classes of transformers 5.19 fill in where a published config.json leaves it out.
_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "gemma": {"num_key_value_heads": 16, "head_dim": 256},
    "gemma2": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
    "gemma3_text": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
    "gemma3n_text": {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "sliding_window": 512,
                     "num_kv_shared_layers": 15},
    "gemma4_text": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 512,
                    "global_head_dim": 512},
    "gpt_oss": {"num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128},
    "llama4_text": {"num_key_value_heads": 8, "head_dim": 128, "attention_chunk_size": 8192},
    "mistral": {"num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8},
    "qwen3_next": {"num_key_value_heads": 2, "head_dim": 256},
}  # fmt: skip

# Attention that differs from layer to layer, or is stored, in ways that the rules here do not know.
_REFUSED = (
    "block_configs",
    "compress_ratios",
    "cross_attention_layers",
    "hybrid_layer_pattern",
    "linear_attn_config",
    "swa_num_key_value_heads",
)


def config_path(model: str) -> Path:
    """The config.json of a model's folder, or the file itself. Raises UserError."""
    path = Path(model)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        raise UserError(f"--model {model}: no such file: give a folder with a config.json, or a config.json; "
                        f"nothing is downloaded")  # fmt: skip
    return path


def read_config(path: Path) -> dict[str, Any]:
    """The file's keys. Raises UserError."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: should be JSON, a model's config: {error}") from error
    if not isinstance(config, dict):
        raise UserError(f"{path}: should be a JSON object, a model's config")
    return config


def text_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """The language model's own keys, with the defaults of its class, of a config that may hold images' and more."""
    nested = next((config[key] for key in NESTED if isinstance(config.get(key), dict)), None)
    text = dict(config if nested is None else nested)
    if nested is not None and "model_type" not in text and config.get("model_type") in ("gemma3", "gemma3n", "gemma4"):
        text["model_type"] = f"{config['model_type']}_text"
    outer = {key: config[key] for key in _OUTER if key in config}
    return {**_DEFAULTS.get(str(text.get("model_type")), {}), **outer, **text}


def shape(config: Mapping[str, Any], *, name: str, where: str) -> ModelShape:
    """The shape of the model whose config this is; `where` is what complaints name. Raises UserError."""
    text = checked(text_part(config), where)
    if text.get("is_encoder_decoder"):
        raise UserError(f"{where}: is_encoder_decoder: true: should be a decoder; an encoder's cache is not counted")
    refused = next((key for key in _REFUSED if text.get(key)), None)
    if text.get("model_type") == "deepseek_v4":
        refused = "model_type: deepseek_v4"
    if refused is not None:
        raise UserError(
            f"{where}: {refused}: attention that loadgen cannot count: leave out --model and give --layers, --kv-heads "
            f"and --head-dim"
        )
    latent = _latent(text, where)
    kinds = layer_kinds(text, _first(text, LAYERS), where)
    kept = [index for index, kind in enumerate(kinds) if kind in ("full", "sliding", "chunked")]
    layers = tuple(latent or _layer(text, kinds[index], index, where) for index in kept)
    if not layers:
        raise UserError(f"{where}: no layer attends: such a model has no KV cache to count")
    states = sum(kind == "state" for kind in kinds)
    return ModelShape(
        name=name,
        layers=layers,
        states=states,
        max_tokens=_first(text, MAX_TOKENS),
        notes=tuple(_notes(text, states, latent)),
    )


def _notes(text: Mapping[str, Any], states: int, latent: Layer | None) -> list[str]:
    notes = []
    if states:
        notes.append(f"{states} layers hold a state of constant size per request: it is not counted")
    if latent is not None and latent.beside_bytes:
        notes.append(
            f"a sparse index keeps {latent.beside_bytes:g} bytes per token and layer more, in every format; some of "
            f"vLLM's backends store fp8 as fp8_ds_mla"
        )
    if latent is None and not any(text.get(key) for key in KV_HEADS) and not text.get("multi_query"):
        notes.append("no num_key_value_heads: as many KV heads as attention heads")
    if guessed_windows(text):
        notes.append("nothing tells which layers have the sliding_window: all are taken to")
    return notes


def _first(text: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    """The first of `keys` that is there."""
    return next((text[key] for key in keys if key in text), None)


def _needed(text: Mapping[str, Any], keys: tuple[str, ...], where: str, remedy: str) -> int:
    value = _first(text, keys)
    if value is None:
        raise UserError(f"{where}: {keys[0]}: missing: {remedy}")
    return value


def _latent(text: Mapping[str, Any], where: str) -> Layer | None:
    """A layer of DeepSeek's latent attention; with `index_topk`, beside vLLM's index of fp8 keys.

    vllm/model_executor/models/deepseek_v2.py: index_head_dim bytes and a float32 scale per 128 of them.
    """
    rank = text.get("kv_lora_rank")
    if rank is None:
        return None
    rope = _needed(text, ("qk_rope_head_dim",), where, "kv_lora_rank should have it beside")
    index = (
        _needed(text, ("index_head_dim",), where, "index_topk should have it beside") if text.get("index_topk") else 0
    )
    return Layer(latent=(rank, rope), beside_bytes=index + index // 128 * 4)


def _layer(text: Mapping[str, Any], kind: Kind, index: int, where: str) -> Layer:
    own = (text.get("per_layer_config") or {}).get(str(index))
    text = {**text, **(own or {})}
    head_dim, kv_heads = _head_dim(text, where), _kv_heads(text, index, where)
    value_dim = text.get("v_head_dim") or head_dim
    if kind == "full" and text.get("global_head_dim") and not own:
        head_dim = value_dim = text["global_head_dim"]
        if text.get("attention_k_eq_v"):
            kv_heads = text.get("num_global_key_value_heads") or kv_heads
    window = text.get({"sliding": "sliding_window", "chunked": "attention_chunk_size"}.get(kind, "")) or None
    return Layer(kv_heads=kv_heads, head_dim=head_dim, value_dim=value_dim, window=window)


def _head_dim(text: Mapping[str, Any], where: str) -> int:
    given = _first(text, HEAD_DIM)
    if given is not None:
        return given
    hidden = _needed(text, HIDDEN, where, "give --head-dim")
    heads = _needed(text, HEADS, where, "give --head-dim")
    if hidden % heads:
        raise UserError(f"{where}: head_dim: missing, and {hidden} / {heads} heads is no whole number: give --head-dim")
    return hidden // heads


def _kv_heads(text: Mapping[str, Any], index: int, where: str) -> int:
    key, given = next(((key, text[key]) for key in KV_HEADS if key in text), ("", None))
    if isinstance(given, list):
        if index >= len(given):
            raise UserError(f"{where}: {key}: {len(given)} numbers: should be one for each layer")
        return int(given[index])
    if text.get("multi_query") and not text.get("new_decoder_architecture"):
        return 1
    return given or _needed(text, HEADS, where, "give --kv-heads")
