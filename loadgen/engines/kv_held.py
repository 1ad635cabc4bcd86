"""Bytes that sequences hold in a model's KV cache, in any format: windows, latents, edge layers and residuals counted.

A model in a format is a few `Part`s: the layers that share a window, with the bytes that one token takes in all of
them. A sequence of n tokens holds min(n, window) tokens of a part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadgen.engines.kv_formats import (
    EDGE_LAYERS,
    KV_FORMATS,
    LATENT_RANK,
    LATENT_ROPE,
    MLA_FORMATS,
    OTHER_FORMATS,
    KvFormat,
    LatentFormat,
    Residual,
)
from loadgen.engines.model_shape import Layer, ModelShape
from loadgen.errors import UserError

Numbers = NDArray[np.float64]

BASE = "bfloat16"
_SHORT = {"bf16": "bfloat16", "fp16": "float16"}


def all_formats() -> dict[str, KvFormat | LatentFormat]:
    """Every format of every engine, by name."""
    return {**KV_FORMATS, **MLA_FORMATS, **OTHER_FORMATS}


def named(name: str) -> str:
    """The full name of a format: bf16 and fp16 are bfloat16 and float16, q8_0 is llama.cpp:q8_0. Raises UserError."""
    formats = all_formats()
    if name in _SHORT or name in formats:
        return _SHORT.get(name, name)
    if name == "auto":
        raise UserError(
            "--format auto: is what the checkpoint says; should be a format's own name, such as bf16 or fp8"
        )
    alike = [full for full in formats if full.partition(":")[2] == name]
    if len(alike) == 1:
        return alike[0]
    raise UserError(f"--format {name}: should be all or among {', '.join(alike or formats)}")


def unfit(name: str, shape: ModelShape) -> str | None:
    """Why this model's cache cannot be kept in this format; None where it can."""
    form = all_formats()[name]
    latents = {layer.latent for layer in shape.layers if layer.latent is not None}
    if isinstance(form, LatentFormat):
        made_for = f"made for a latent of {LATENT_RANK} + {LATENT_ROPE} values"
        return None if latents == {(LATENT_RANK, LATENT_ROPE)} else made_for
    if latents and not form.latent:
        return "holds no latent (kv_lora_rank)"
    if not form.windows and any(window is not None for window in shape.windows):
        return "takes no sliding-window layers"
    sizes = {size for layer in shape.layers if not layer.latent for size in (layer.head_dim, layer.value_dim)}
    odd = [size for size in sizes if form.block_values and size % form.block_values]
    return f"needs a head size that is a multiple of {form.block_values}, not {odd[0]}" if odd else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The layers that keep `window` tokens (None: all): bytes of one token in 16 bits and as the format stores it."""

    window: int | None
    full_bytes: float
    stored_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A model's cache in one format."""

    name: str
    parts: tuple[Part, ...]
    residual: Residual | None
    in_place: bool
    nominal_ratio: float

    @property
    def bytes_per_token(self) -> float:
        """Of a token within every window, and no longer in the residual."""
        return sum(part.stored_bytes for part in self.parts)

    @property
    def full_bytes(self) -> float:
        """The same in 16 bits."""
        return sum(part.full_bytes for part in self.parts)

    def sequence_bytes(self, tokens: Numbers | float) -> Numbers:
        """Of sequences of so many tokens, one by one."""
        total: Numbers = np.zeros_like(tokens, dtype=np.float64)
        for part in self.parts:
            held = np.minimum(tokens, part.window) if part.window else np.asarray(tokens, dtype=np.float64)
            total = total + part.stored_bytes * held + self._kept_bytes(part, held)
        return total

    def together_bytes(self, lengths: Sequence[int], tokens: int) -> float:
        """Of sequences of these lengths that hold `tokens` together, what they share counted once.

        In layers with a window each sequence holds its own: what lies in it is mostly its own, but never more than
        all of `tokens`.
        """
        each = np.array(lengths, dtype=np.float64)
        total = 0.0
        for part in self.parts:
            held = np.minimum(each, part.window) if part.window else each
            total += part.stored_bytes * min(float(held.sum()), tokens) + float(self._kept_bytes(part, held).sum())
        return total

    def step_bytes(self, tokens: Numbers | float) -> Numbers:
        """That a decode step moves for sequences of so many tokens, one by one, at the least.

        The cache is read once; where it is turned back into 16 bits first, what was stored is read as well as that.
        """
        stored = self.sequence_bytes(tokens)
        return stored if self.in_place else stored + self.in_full().sequence_bytes(tokens)

    def in_full(self) -> "Held":
        """The same layers in 16 bits."""
        parts = tuple(
            Part(window=part.window, full_bytes=part.full_bytes, stored_bytes=part.full_bytes) for part in self.parts
        )
        return Held(name=BASE, parts=parts, residual=None, in_place=True, nominal_ratio=1.0)

    def _kept_bytes(self, part: Part, held: Numbers) -> Numbers:
        """What the newest tokens take beyond the format, being in 16 bits: keys and values are half of it each."""
        if self.residual is None:
            return np.zeros_like(held)
        kept = sum(
            np.minimum(held, self.residual.most(keeping)) for keeping in (self.residual.keys, self.residual.values)
        )
        beyond: Numbers = (part.full_bytes - part.stored_bytes) * np.asarray(kept) / 2
        return beyond


def held(name: str, shape: ModelShape) -> Held:
    """The model's cache in the format of this (full) name, which fits it."""
    form = all_formats()[name]
    keeps_edges = isinstance(form, KvFormat) and form.keeps_edges and not shape.states
    edges = min(EDGE_LAYERS, len(shape.layers) // 2) if keeps_edges else 0
    stored: dict[int | None, float] = dict.fromkeys(shape.windows, 0.0)
    full = dict(stored)
    for index, layer in enumerate(shape.layers):
        at_edge = index < edges or index >= len(shape.layers) - edges
        full[layer.window] += _token_bytes(KV_FORMATS[BASE], layer)
        stored[layer.window] += _token_bytes(KV_FORMATS[BASE] if at_edge else form, layer)
    return Held(
        name=name,
        parts=tuple(Part(window=one, full_bytes=full[one], stored_bytes=stored[one]) for one in shape.windows),
        residual=form.residual if isinstance(form, KvFormat) else None,
        in_place=form.in_place if isinstance(form, KvFormat) else True,
        nominal_ratio=form.nominal_ratio,
    )


def _token_bytes(form: KvFormat | LatentFormat, layer: Layer) -> float:
    if isinstance(form, LatentFormat):
        return form.token_bytes + layer.beside_bytes
    if layer.latent is not None:
        return sum(layer.latent) * form.key_bits / 8 + layer.beside_bytes
    return layer.kv_heads * form.content_bytes(layer.head_dim, layer.value_dim) + layer.beside_bytes


def as_json(one: Held) -> dict[str, Any]:
    """What a reader of JSON needs of it."""
    return {
        "format": one.name,
        "bytes_per_token": one.bytes_per_token,
        "nominal_ratio": one.nominal_ratio,
        "parts": one.parts,
        "residual": one.residual,
        "read_in_place": one.in_place,
    }
