"""What of a model decides the size of its KV cache: its layers, each with its KV heads, head size and window."""

from dataclasses import dataclass, replace

from loadgen.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer that keeps keys and values.

    `window`: it keeps the newest so many tokens alone. `latent`: (rank, rotary width) of multi-head latent attention,
    one vector per token in place of heads. `beside_bytes`: what it keeps per token in no format's hands.
    """

    kv_heads: int = 1
    head_dim: int = 0
    value_dim: int = 0
    window: int | None = None
    latent: tuple[int, int] | None = None
    beside_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model, from its first layer to its last. `states`: layers that hold a state of constant size, not counted."""

    name: str
    layers: tuple[Layer, ...]
    states: int = 0
    max_tokens: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The different windows of its layers; None for those that keep every token."""
        return tuple(dict.fromkeys(layer.window for layer in self.layers))

    def on(self, gpus: int) -> "ModelShape":
        """One GPU's part under tensor parallelism: KV heads are dealt out, and copied where there are too few of them.

        A latent is whole on each GPU (vLLM: max(1, total heads // size), and one head for MLA). Raises UserError.
        """
        uneven = [one.kv_heads for one in self.layers if not one.latent and one.kv_heads % gpus and gpus % one.kv_heads]
        if uneven:
            raise UserError(f"--tensor-parallel {gpus}: should divide {uneven[0]} KV heads, or be a multiple of them")
        return replace(
            self, layers=tuple(replace(layer, kv_heads=max(1, layer.kv_heads // gpus)) for layer in self.layers)
        )

    def padding_layers(self) -> int:
        """Layers that vLLM adds so that layers of each kind make groups of one size; 0 with layers of one kind.

        vllm/v1/core/kv_cache_utils.py, _get_kv_cache_groups_uniform_page_size of 0.32.
        """
        counts = [sum(layer.window == window for layer in self.layers) for window in self.windows]
        group = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
        return sum(-count % group for count in counts)
