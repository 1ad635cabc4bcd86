"""A model's weights: bytes in memory, and bytes that one decode step reads, from its files or from its config.

The count of parameters is the sum of the matrices of a decoder with gated feed-forward layers, dense or of experts,
with grouped-query or latent attention; biases and norms of heads (below 0.1 %) are left out. A decode step reads every
matrix once, but of the input embedding a row per sequence, and of experts those that its tokens are sent to.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loadgen.engines.model_config import text_part
from loadgen.errors import UserError

BYTES_EACH = 2.0

_COUNTED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2",
            "mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32")  # fmt: skip
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_TIED = ("gemma", "gemma2", "gemma3_text")  # tie_word_embeddings where the config is silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """`rows_bytes`: the input embedding, where it is no output matrix too. `experts` of which a token takes `taken`."""

    total_bytes: float
    source: str
    rows_bytes: float = 0.0
    expert_bytes: float = 0.0
    experts: int = 0
    taken: int = 0

    def step_bytes(self, sequences: float) -> float:
        """Read by a step of so many sequences, each of which picks its experts evenly and on its own.

        Of E experts, of which each token takes k, B tokens meet E (1 - (1 - k / E)^B). Real routers are less even and
        meet fewer.
        """
        met = 1.0 - (1.0 - self.taken / self.experts) ** sequences if self.experts else 1.0
        return self.total_bytes - self.rows_bytes - self.expert_bytes * (1.0 - met)

    def on(self, gpus: int) -> "Weights":
        """One GPU's part."""
        return replace(self, total_bytes=self.total_bytes / gpus, rows_bytes=self.rows_bytes / gpus,
                       expert_bytes=self.expert_bytes / gpus)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """How many a model has; `rows` of them are an embedding that is looked up only, `in_experts` routed experts'."""

    total: int
    rows: int
    in_experts: int = 0
    experts: int = 0
    taken: int = 0


def weights(config: Mapping[str, Any], folder: Path | None, *, given_bytes: float | None, where: str) -> Weights | None:
    """The weights: as given, else of the folder's files, else counted from the config; None where none of them tell."""
    counted = parameters(config)
    total, source = given_bytes, "as given"
    if total is None and folder is not None:
        total, source = _of_files(folder)
    if total is None:
        if counted is None or text_part(config).get("quantization_config"):
            return None
        total, source = counted.total * BYTES_EACH, f"{counted.total / 1e9:.3g} billion parameters, 2 bytes each"
    if counted is None:
        return Weights(total_bytes=total, source=source)
    rows_bytes = counted.rows * BYTES_EACH
    if rows_bytes > total / 2:
        raise UserError(f"{where}: vocab_size: an embedding of {rows_bytes:,.0f} bytes is more than half of the "
                        f"{total:,.0f} bytes of weights ({source})")  # fmt: skip
    return Weights(
        total_bytes=total,
        source=source,
        rows_bytes=rows_bytes,
        expert_bytes=total * counted.in_experts / counted.total,
        experts=counted.experts,
        taken=counted.taken,
    )


def _of_files(folder: Path) -> tuple[float | None, str]:
    """The size that an index states, else of the files themselves; Mistral's second copy (consolidated) is not read."""
    for pattern in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        index = folder / pattern
        if index.is_file():
            try:
                size = json.loads(index.read_text(encoding="utf-8"))["metadata"]["total_size"]
                return float(size), pattern
            except (ValueError, KeyError, TypeError):
                continue  # an index without a size: the files have one
    for pattern in ("model*.safetensors", "*.safetensors", "*.bin"):
        sizes = [path.stat().st_size for path in sorted(folder.glob(pattern)) if path.name != "training_args.bin"]
        if sizes:
            return float(sum(sizes)), f"{len(sizes)} files {pattern}"
    return None, ""


def parameters(config: Mapping[str, Any]) -> Parameters | None:
    """How many parameters the text model has; None for kinds of model that this cannot count."""
    text = text_part(config)
    model_type = str(text.get("model_type"))
    try:
        layers, hidden = text["num_hidden_layers"], text["hidden_size"]
        sparse, experts = _sparse_layers(text), max(int(text.get(key) or 0) for key in _EXPERTS)
        expert = 3 * hidden * int(text.get("moe_intermediate_size") or text["intermediate_size"])
        beside = expert * int(text.get("n_shared_experts") or 0) + hidden * experts
        feed = (layers - sparse) * 3 * hidden * text["intermediate_size"] + sparse * (experts * expert + beside)
        attend = layers * (_latent_attention(text) if text.get("kv_lora_rank") else _attention(text))
        embedding = text["vocab_size"] * hidden
    except (KeyError, TypeError, ValueError):
        return None  # a key that the count needs is not there or no number
    if model_type not in _COUNTED:
        return None
    tied = text.get("tie_word_embeddings", model_type in _TIED)
    return Parameters(
        total=feed + attend + embedding * (1 if tied else 2) + (2 * layers + 1) * hidden,
        rows=0 if tied else embedding,
        in_experts=sparse * experts * expert,
        experts=experts if sparse else 0,
        taken=min(experts, int(text.get("num_experts_per_tok") or experts)),
    )


def _sparse_layers(text: Mapping[str, Any]) -> int:
    """Layers of experts: all after the first dense ones, or one of every `decoder_sparse_step`."""
    if not any(text.get(key) for key in _EXPERTS):
        return 0
    layers: int = text["num_hidden_layers"] - int(text.get("first_k_dense_replace") or 0)
    dense = len(text.get("mlp_only_layers") or ())
    return layers // int(text.get("decoder_sparse_step") or text.get("moe_layer_freq") or 1) - dense


def _attention(text: Mapping[str, Any]) -> int:
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    head_dim = text.get("head_dim") or hidden // heads
    kv_heads = text.get("num_key_value_heads") or heads
    return int(2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim)


def _latent_attention(text: Mapping[str, Any]) -> int:
    hidden, heads, rank, rope = (
        text[key] for key in ("hidden_size", "num_attention_heads", "kv_lora_rank", "qk_rope_head_dim")
    )
    wide, value = text["qk_nope_head_dim"], text["v_head_dim"]
    query_rank = text.get("q_lora_rank")
    query = query_rank * (hidden + heads * (wide + rope)) if query_rank else hidden * heads * (wide + rope)
    return int(query + hidden * (rank + rope) + rank * heads * (wide + value) + heads * value * hidden)


def experts_unknown(config: Mapping[str, Any], weighed: Weights) -> bool:
    """Whether the model has experts that `weighed` does not tell apart."""
    text = text_part(config)
    return not weighed.experts and any(text.get(key) for key in _EXPERTS)
