"""The model's shape, as far as the KV cache depends on it: given, read from a config, or one of the same size."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadgen.engines.kv_formats import bytes_per_token
from loadgen.errors import UserError

HEADS = (8, 4, 2, 1)
HEAD_DIMS = (128, 64, 32, 16, 8, 4, 2, 1)
TOLERANCE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Layers, KV heads and head size. `vocabulary` where it is known."""

    layers: int
    kv_heads: int
    head_dim: int
    vocabulary: int | None = None

    @property
    def text(self) -> str:
        """As `--shape` takes it."""
        return f"layers={self.layers},kv_heads={self.kv_heads},head_dim={self.head_dim}"


def from_text(text: str) -> Shape:
    """ "layers=8,kv_heads=8,head_dim=128" -> Shape. Raises UserError."""
    keys = ("layers", "kv_heads", "head_dim")
    pairs = dict(part.strip().partition("=")[::2] for part in text.split(","))
    if set(pairs) != set(keys) or not all(value.strip().isdigit() and int(value) for value in pairs.values()):
        raise UserError(f"--shape: {text}: should be like layers=8,kv_heads=8,head_dim=128")
    return Shape(**{key: int(pairs[key]) for key in keys})


def from_model(folder: Path) -> Shape:
    """The shape in a model folder's config.json (Hugging Face names). Raises UserError."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--model: {path}: cannot be read: {error}; give a model's folder, or --shape") from error
    config = config.get("text_config", config) if isinstance(config, dict) else {}
    heads = config.get("num_attention_heads")
    found: dict[str, Any] = {
        "layers": config.get("num_hidden_layers"),
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or (config.get("hidden_size", 0) // heads if heads else None),
    }
    lacking = [key for key, value in found.items() if not isinstance(value, int) or value < 1]
    if lacking:
        raise UserError(f"--model: {path}: no {', '.join(lacking)} in it; give --shape")
    vocabulary = config.get("vocab_size")
    return Shape(**found, vocabulary=vocabulary if isinstance(vocabulary, int) else None)


def size_of(shape: Shape, kv_dtype: str) -> float:
    """Bytes of one cached token. Raises UserError for a format of unknown size."""
    size = bytes_per_token(kv_dtype, layers=shape.layers, kv_heads=shape.kv_heads, head_dim=shape.head_dim)
    if size is None:
        raise UserError(f"KV format {kv_dtype}: its size is not known, so no profile can hold it")
    return size


def equivalent(token_size_bytes: float, kv_dtype: str) -> Shape:
    """A shape whose tokens are of this size: of the usual head sizes and counts, the first that gives whole layers.

    Raises UserError where none does.
    """
    for head_dim in HEAD_DIMS:
        for kv_heads in HEADS:
            layers = token_size_bytes / size_of(Shape(layers=1, kv_heads=kv_heads, head_dim=head_dim), kv_dtype)
            if layers >= 1 and abs(layers - round(layers)) < 1e-6 * layers:
                return Shape(layers=round(layers), kv_heads=kv_heads, head_dim=head_dim)
    raise UserError(f"{token_size_bytes:,.1f} bytes per {kv_dtype} token fit no shape; give --model or --shape")


def skipped_layers(shape: Shape, kv_dtype: str, token_size_bytes: float) -> int:
    """How many layers the engine must have left in 16 bits, from the size of a token."""
    each = size_of(shape, kv_dtype) / shape.layers
    full = size_of(shape, "bfloat16") / shape.layers
    if full <= each:
        return 0
    return min(max(0, round((token_size_bytes - each * shape.layers) / (full - each))), shape.layers)
