"""What an estimate is about: a model, its weights, a GPU's memory and the formats, from what was given."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadgen.emulator import profile as profiles
from loadgen.engines import model_config
from loadgen.engines.kv_held import BASE, Held, all_formats, held, named, unfit
from loadgen.engines.model_shape import ModelShape
from loadgen.engines.model_weights import Weights, experts_unknown, weights
from loadgen.errors import UserError
from loadgen.workload.estimate import Budget

USUAL = (BASE, "fp8", "fp8_ds_mla", "int8_per_token_head", "int4_per_token_head", "nvfp4", "turboquant_4bit_nc")
_FLAGS = {"layers": "num_hidden_layers", "kv_heads": "num_key_value_heads", "head_dim": "head_dim",
          "window": "sliding_window"}  # fmt: skip
BY_HAND = "--layers, --kv-heads, --head-dim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """All figures are of one GPU of `gpus`. `formats`: the base first. `left_out`: format -> why."""

    shape: ModelShape
    weights: Weights | None
    budget: Budget | None
    formats: tuple[Held, ...]
    left_out: dict[str, str]
    gpus: int
    block_tokens: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A config, where it comes from, and what a profile says beside it."""

    config: dict[str, Any]
    name: str
    where: str
    folder: Path | None = None
    profile: profiles.Profile | None = None


def subject(
    *,
    model: str | None,
    profile: str | None,
    formats: Sequence[str],
    tensor_parallel: int,
    block: int | None,
    contexts: Sequence[int],
    **given: Any,
) -> Subject:
    """Reads what there is to read. Raises UserError."""
    source = _source(model, profile, given)
    shape = model_config.shape(source.config, name=source.name, where=source.where)
    long = [context for context in contexts if shape.max_tokens is not None and context > shape.max_tokens]
    if long:
        raise UserError(f"--context {long[0]}: should be at most {shape.max_tokens}, the model's longest")
    weighed = _weights(source, given["weights"])
    kept, left_out = _formats(formats, shape)
    shape, whole = shape.on(tensor_parallel), weighed
    weighed = weighed.on(tensor_parallel) if weighed is not None else None
    block_tokens = block or (source.profile.scheduler.block_tokens if source.profile else 16)
    budget = _budget(source, given, weighed, block_tokens)
    return Subject(
        shape=shape,
        weights=weighed,
        budget=budget,
        formats=tuple(held(name, shape) for name in kept),
        left_out=left_out,
        gpus=tensor_parallel,
        block_tokens=block_tokens,
        notes=(*shape.notes, *_notes(shape, whole, source.config)),
    )


def _source(model: str | None, profile: str | None, given: dict[str, Any]) -> _Source:
    overrides = {key: given[flag] for flag, key in _FLAGS.items() if given[flag] is not None}
    if profile is not None:
        if model is not None or overrides:
            raise UserError(f"--profile {profile}: has a model of its own: leave out --model, {BY_HAND} and --window")
        return _of_profile(profile)
    if model is None:
        return _by_hand(overrides)
    path = model_config.config_path(model)
    text = model_config.text_part(model_config.read_config(path))
    if overrides.keys() & {"num_key_value_heads", "head_dim"} and text.get("kv_lora_rank"):
        raise UserError(f"{path}: kv_lora_rank: one latent for all heads: leave out --kv-heads and --head-dim")
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    folder = path.parent if path.name == "config.json" else None
    return _Source(config={**text, **overrides}, name=name, where=str(path), folder=folder)


def _by_hand(overrides: dict[str, Any]) -> _Source:
    missing = [
        f"--{flag.replace('_', '-')}" for flag in ("layers", "kv_heads", "head_dim") if _FLAGS[flag] not in overrides
    ]
    if len(missing) == 3:
        raise UserError(f"give --model, --profile, or {BY_HAND}")
    if missing:
        raise UserError(f"{', '.join(missing)}: missing: without --model, {BY_HAND} are needed")
    return _Source(config=overrides, name="model as given", where=BY_HAND)


def _of_profile(name: str) -> _Source:
    loaded = profiles.load(name)
    keys = loaded.model
    config = {"num_hidden_layers": keys.layers, "num_key_value_heads": keys.kv_heads, "head_dim": keys.head_dim,
              "max_position_embeddings": keys.max_model_len}  # fmt: skip
    return _Source(config=config, name=keys.name, where=str(profiles.find(name)), profile=loaded)


def _weights(source: _Source, given_bytes: float | None) -> Weights | None:
    if given_bytes is None and source.profile is not None:
        if not source.profile.model.weight_bytes:
            return None
        return Weights(total_bytes=source.profile.model.weight_bytes, source=f"profile {source.profile.name}")
    return weights(source.config, source.folder, given_bytes=given_bytes, where=source.where)


def _budget(source: _Source, given: dict[str, Any], weighed: Weights | None, block_tokens: int) -> Budget | None:
    """One GPU's memory as given, else the profile's; None where neither tells. Raises UserError."""
    keys = source.profile.memory if source.profile is not None else None
    if given["memory"] is None and keys is not None and keys.kv_cache_bytes is not None:
        return Budget(memory_bytes=keys.kv_cache_bytes, utilization=1.0, weights_bytes=0.0, block_tokens=block_tokens)
    memory_bytes = given["memory"] or (keys.total_bytes if keys is not None else None)
    if memory_bytes is None:
        return None
    if weighed is None:
        raise UserError(
            f"{source.where}: no files of weights beside it, and its parameters cannot be counted: give --weights"
        )
    usual = (keys.utilization, keys.reserved_bytes) if keys is not None else (0.92, 0.0)
    budget = Budget(
        memory_bytes=memory_bytes,
        utilization=given["utilization"] or usual[0],
        weights_bytes=weighed.total_bytes,
        reserved_bytes=usual[1] if given["reserved"] is None else given["reserved"],
        block_tokens=block_tokens,
    )
    budget.check()
    return budget


def _formats(asked: Sequence[str], shape: ModelShape) -> tuple[list[str], dict[str, str]]:
    """Full names, the base first, and what was left out with the reason. Raises UserError for one asked by name."""
    names = [named(one) for one in asked if one != "all"]
    wrong = {name: why for name in names if (why := unfit(name, shape)) is not None}
    if wrong:
        raise UserError(*(f"--format {name}: {why}" for name, why in wrong.items()))
    if "all" in asked or not asked:
        names += list(all_formats()) if asked else USUAL
    left_out = {name: why for name in names if (why := unfit(name, shape)) is not None}
    kept = [name for name in dict.fromkeys((BASE, *names)) if name not in left_out]
    return kept, left_out if asked else {}


def _notes(shape: ModelShape, weighed: Weights | None, config: dict[str, Any]) -> list[str]:
    notes = []
    padding = shape.padding_layers()
    if padding:
        notes.append(f"vLLM lays layers of one kind out in groups and adds {padding} empty ones to the "
                     f"{len(shape.layers)} to fill them: memory that is not counted here")  # fmt: skip
    if weighed is not None and experts_unknown(config, weighed):
        notes.append("its experts' share of the weights is not known: every step is taken to read them all")
    return notes
