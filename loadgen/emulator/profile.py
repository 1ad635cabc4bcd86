"""A profile: everything that is true of an emulated machine, model and engine, as a YAML file with a source.

`deploy/emulator/profiles/*.yaml` are the ones that ship; `loadgen calibrate` writes new ones from measured runs. With
an arm's flags a profile becomes an `arm.Emulated`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

import loadgen
from loadgen import document
from loadgen.emulator.cost import StepCost
from loadgen.engines.kv_formats import KV_FORMATS, KvFormat, bytes_per_token
from loadgen.errors import UserError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Nonnegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# Bounds far beyond any machine, so that a slip of the pen is told and a simulation ends.
Cost = Annotated[float, Field(ge=0, le=3_600, allow_inf_nan=False)]
Bandwidth = Annotated[float, Field(ge=1e-3, allow_inf_nan=False)]
Spread = Annotated[float, Field(ge=0, le=3, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Ratio = Annotated[float, Field(gt=0, le=1)]

BASE_FORMAT = "bfloat16"


class Keys(BaseModel):
    """A mapping in the file: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelKeys(Keys):
    """The model that is served."""

    name: str = Field(description="what /v1/models says")
    layers: Count = Field(description="attention layers that keep every token")
    kv_heads: Count = Field(description="heads of K and of V in each layer")
    head_dim: Count = Field(description="values of one head")
    weight_bytes: Nonnegative = Field(description="read once by every step, and held in memory")
    max_model_len: Count = Field(description="longest prompt and output together, tokens")
    vocabulary: Count = Field(default=32_000, description="token ids that prompts may hold")


class MemoryKeys(Keys):
    """What there is for the cache: `kv_cache_bytes` itself, or what total x utilization - weights - reserved leaves."""

    kv_cache_bytes: Positive | None = Field(default=None, description="the cache itself; or give total_bytes")
    total_bytes: Positive | None = Field(default=None, description="the device's memory; or give kv_cache_bytes")
    utilization: Ratio = Field(default=0.92, description="share of total_bytes that the engine takes")
    reserved_bytes: Nonnegative = Field(default=0, description="activations, graphs, other processes")

    @model_validator(mode="after")
    def _one_of_two(self) -> "MemoryKeys":
        if (self.kv_cache_bytes is None) == (self.total_bytes is None):
            raise ValueError("should have kv_cache_bytes or total_bytes, one of the two")
        return self


class StepKeys(Keys):
    """What every step costs in the base format; see `cost.StepCost`."""

    fixed_s: Cost = Field(description="of every step: launches, scheduling, the host")
    weight_bandwidth_bytes_per_s: Bandwidth = Field(description="at which model.weight_bytes are read")
    attention_bandwidth_bytes_per_s: Bandwidth = Field(description="at which the cache is read")
    token_s: Cost = Field(default=0, description="per token scheduled: compute")
    sequence_s: Cost = Field(default=0, description="per sequence that yields a token: sampling, streaming")
    prefill_pair_s: Cost = Field(default=0, description="per pair of prefilled token and token that it attends to")


class ReadKeys(Keys):
    """How one backend reads and writes a format. What is left out is as in `step`."""

    fused: bool = Field(
        default=True, description="false: the cache is converted before it is read, read_penalty says how"
    )
    read_penalty: Annotated[float, Field(ge=1, allow_inf_nan=False)] = Field(
        default=1, description="factor on reading the cache: above 1 where it is not read in place"
    )
    attention_bandwidth_bytes_per_s: Bandwidth | None = Field(default=None, description="in place of step's")
    prefill_pair_s: Cost | None = Field(default=None, description="in place of step's")
    sequence_s: Cost | None = Field(default=None, description="in place of step's")
    conversion_step_s: Cost = Field(default=0, description="per step: scales, further launches")
    conversion_stored_s: Cost = Field(default=0, description="per token stored, decoded or prefilled")
    conversion_prefill_s: Cost = Field(default=0, description="per token prefilled, beside conversion_stored_s")

    @model_validator(mode="after")
    def _unfused_costs(self) -> "ReadKeys":
        if not self.fused and self.read_penalty == 1:
            raise ValueError("read_penalty: 1: should be above 1 where fused is false")
        return self


class FormatKeys(ReadKeys):
    """What a KV format changes."""

    backend: str = Field(description="attention backend that the engine takes by itself")
    other_backends: dict[str, ReadKeys] = Field(
        default_factory=dict, description="the same format through a backend asked for with attention-backend: by name"
    )
    residual_tokens: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="newest tokens of each sequence kept in 16 bits: a ring per slot, in memory and in reading",
    )
    skip_layers: Annotated[int, Field(ge=0)] = Field(
        default=0, description="layers left in 16 bits (vLLM leaves 4 with turboquant formats)"
    )


class SchedulerKeys(Keys):
    """vLLM's limits; an arm's flags of the same names come before them."""

    max_num_seqs: Count = Field(default=256, description="sequences running at once")
    max_num_batched_tokens: Count = Field(default=8192, description="tokens of one step")
    block_tokens: Count = Field(default=16, description="tokens of one block (--block-size)")
    chunked_prefill: bool = Field(default=True, description="a prompt may be split over steps")
    prefix_caching: bool = Field(
        default=False, description="known prefixes are not computed again (vLLM's default: true)"
    )


class NoiseKeys(Keys):
    """What makes steps differ; see `noise.NoiseSpec`. Spreads are standard deviations of the logarithm."""

    step: Spread = Field(default=0, description="spread of each step, independent")
    start: Spread = Field(default=0, description="spread of each process start: one factor until it ends")
    wander: Spread = Field(default=0, description="spread of a slow wandering that all arms on the machine share")
    wander_s: Positive = Field(default=60, description="its correlation time, s")
    drift_per_hour: Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)] = Field(
        default=0, description="relative slowdown per hour on the machine's clock"
    )
    hiccups_per_minute: Annotated[float, Field(ge=0, le=60_000, allow_inf_nan=False)] = Field(
        default=0, description="pauses at random times"
    )
    hiccup_s: Annotated[float, Field(gt=0, le=3_600, allow_inf_nan=False)] = Field(
        default=0.05, description="mean length of one, exponential, s"
    )


class Profile(Keys):
    """One machine with one model."""

    name: str = Field(description="what it is called in messages")
    description: str = Field(default="", description="machine, model, and what is special")
    source: str = Field(description="who measured which number, and which are planted or estimated")
    device: str = Field(default="cuda", description="cuda or cpu: what the log's wording depends on")
    gpu: str | None = Field(default=None, description="the device's name as its driver tells it")
    version: str = Field(default="0.32.0", description="the vLLM whose log wording and metric names are used")
    front_s: Cost = Field(
        default=2e-4, description="s from sending to the engine's queue, in virtual time; a real front takes its own"
    )
    model: ModelKeys = Field(description="see below")
    memory: MemoryKeys = Field(description="see below")
    step: StepKeys = Field(description="see below")
    formats: dict[str, FormatKeys] = Field(min_length=1, description="by --kv-cache-dtype's name; see below")
    scheduler: SchedulerKeys = Field(default=SchedulerKeys(), description="see below")
    noise: NoiseKeys = Field(default=NoiseKeys(), description="see below")

    @model_validator(mode="after")
    def _known_formats(self) -> "Profile":
        unknown = [name for name in self.formats if name not in KV_FORMATS]
        if unknown:
            raise ValueError(f"formats: {', '.join(unknown)}: should be among {', '.join(KV_FORMATS)}")
        thick = [name for name, keys in self.formats.items() if keys.skip_layers > self.model.layers]
        if thick:
            raise ValueError(f"formats.{thick[0]}.skip_layers: should be at most model.layers ({self.model.layers})")
        return self


SECTIONS: Mapping[str, type[Keys]] = {
    "": Profile,
    "model": ModelKeys,
    "memory": MemoryKeys,
    "step": StepKeys,
    "formats.NAME": FormatKeys,
    "formats.NAME.other_backends.NAME": ReadKeys,
    "scheduler": SchedulerKeys,
    "noise": NoiseKeys,
}


def profiles_folder() -> Path:
    """The folder of the profiles that ship: here, beside the package, or inside the installed package."""
    package = Path(loadgen.__file__).resolve().parent
    candidates = (Path("deploy"), package.parent / "deploy", package / "_data" / "deploy")
    return next((f / "emulator" / "profiles" for f in candidates if (f / "emulator" / "profiles").is_dir()), Path())


def find(name: str) -> Path:
    """The file of a profile: a path, or the name of one that ships. Raises UserError that lists those."""
    if name.endswith((".yaml", ".yml")) or "/" in name:
        if Path(name).is_file():
            return Path(name)
        raise UserError(f"profile {name}: no such file")
    folder = profiles_folder()
    if (folder / f"{name}.yaml").is_file():
        return folder / f"{name}.yaml"
    known = ", ".join(sorted(path.stem for path in folder.glob("*.yaml"))) or "none"
    raise UserError(f"profile {name}: no such profile; known: {known}; or a YAML file")


def load(name: str) -> Profile:
    """Reads a profile by name or path. Raises UserError, one line per complaint: file, key, value, what is right."""
    path = find(name)
    return parse(document.text_of(path), path)


def parse(text: str, path: Path) -> Profile:
    """The profile that `text` holds; `path` names it in complaints. Raises UserError."""
    content = document.read(text, path, document.NATIVE).data
    try:
        return Profile.model_validate(content)
    except ValidationError as error:
        raise UserError(*(_complaint(path, line) for line in error.errors(include_url=False))) from error


def _complaint(path: Path, line: Any) -> str:
    place, kind = ".".join(map(str, line["loc"])), line["type"]
    if kind == "extra_forbidden":
        names = tuple(map(str, line["loc"][:-1]))
        section = ".".join("NAME" if number % 2 else name for number, name in enumerate(names))
        return f"{path}: {place}: no such key; known: {', '.join(SECTIONS[section].model_fields)}"
    if kind == "missing":
        return f"{path}: {place}: is required"
    message = line["msg"].removeprefix("Value error, ").removeprefix("Input ").removeprefix("Dictionary ")
    if kind in ("model_type", "dict_type"):
        message = "should be a mapping"
    shown = () if isinstance(line["input"], dict) else (repr(line["input"])[:60],)
    return ": ".join((str(path), *((place,) if place else ()), *shown, message))


def token_bytes(profile: Profile, kv_dtype: str) -> float:
    """Bytes of one cached token outside a residual window, layers that are left in 16 bits included."""
    model, keys = profile.model, profile.formats[kv_dtype]
    shape = {"kv_heads": model.kv_heads, "head_dim": model.head_dim}
    quantized = bytes_per_token(kv_dtype, layers=model.layers - keys.skip_layers, **shape)
    kept = bytes_per_token(BASE_FORMAT, layers=keys.skip_layers, **shape)
    if quantized is None or kept is None:
        raise ValueError(f"{kv_dtype} is not in KV_FORMATS")
    return quantized + kept


def step_cost(profile: Profile, kv_dtype: str) -> StepCost:
    """The coefficients of one format on this machine."""
    step, keys = profile.step, profile.formats[kv_dtype]
    bandwidth = keys.attention_bandwidth_bytes_per_s
    return StepCost(
        fixed_s=step.fixed_s,
        weight_bytes=profile.model.weight_bytes,
        weight_bandwidth_bytes_per_s=step.weight_bandwidth_bytes_per_s,
        bytes_per_token=token_bytes(profile, kv_dtype),
        residual_bytes_per_token=full_bytes(profile),
        attention_bandwidth_bytes_per_s=step.attention_bandwidth_bytes_per_s if bandwidth is None else bandwidth,
        read_penalty=keys.read_penalty,
        token_s=step.token_s,
        sequence_s=step.sequence_s if keys.sequence_s is None else keys.sequence_s,
        prefill_pair_s=step.prefill_pair_s if keys.prefill_pair_s is None else keys.prefill_pair_s,
        conversion_step_s=keys.conversion_step_s,
        conversion_stored_s=keys.conversion_stored_s,
        conversion_prefill_s=keys.conversion_prefill_s,
    )


def full_bytes(profile: Profile) -> float:
    """Bytes of one cached token in 16 bits, all layers."""
    model = profile.model
    full: KvFormat = KV_FORMATS[BASE_FORMAT]
    return model.layers * model.kv_heads * full.content_bytes(model.head_dim)
