"""A profile: everything that is true of an emulated machine, model and engine, as a YAML file with a source.

`deploy/emulator/profiles/*.yaml` are the ones that ship; `loadgen calibrate` writes new ones from measured runs. With
an arm's flags a profile becomes an `arm.Emulated`.
"""

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
Count = Annotated[int, Field(ge=1)]
Ratio = Annotated[float, Field(gt=0, le=1)]

BASE_FORMAT = "bfloat16"


class Keys(BaseModel):
    """A mapping in the file: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelKeys(Keys):
    """The model that is served."""

    name: str = Field(description="what /v1/models says")
    layers: Count
    kv_heads: Count
    head_dim: Count
    weight_bytes: Nonnegative = Field(description="read once by every step, and held in memory")
    max_model_len: Count = Field(description="longest prompt and output together, tokens")
    vocabulary: Count = Field(default=32_000, description="token ids that prompts may hold")


class MemoryKeys(Keys):
    """What there is for the cache: `kv_cache_bytes` itself, or what total x utilization - weights - reserved leaves."""

    kv_cache_bytes: Positive | None = None
    total_bytes: Positive | None = None
    utilization: Ratio = 0.92
    reserved_bytes: Nonnegative = Field(default=0, description="activations, graphs, other processes")

    @model_validator(mode="after")
    def _one_of_two(self) -> "MemoryKeys":
        if (self.kv_cache_bytes is None) == (self.total_bytes is None):
            raise ValueError("should have kv_cache_bytes or total_bytes, one of the two")
        return self


class StepKeys(Keys):
    """What every step costs in the base format; see `cost.StepCost`."""

    fixed_s: Nonnegative
    weight_bandwidth_bytes_per_s: Positive
    attention_bandwidth_bytes_per_s: Positive
    token_s: Nonnegative = 0
    sequence_s: Nonnegative = 0
    prefill_pair_s: Nonnegative = 0


class FormatKeys(Keys):
    """What a KV format changes. What is left out is as in `step`."""

    backend: str = Field(description="attention backend that the log names")
    fused: bool = Field(default=True, description="false: the cache is converted before it is read; see read_penalty")
    read_penalty: Positive = Field(default=1, description="factor on reading the cache")
    attention_bandwidth_bytes_per_s: Positive | None = None
    prefill_pair_s: Nonnegative | None = None
    sequence_s: Nonnegative | None = None
    conversion_step_s: Nonnegative = 0
    conversion_stored_s: Nonnegative = 0
    conversion_prefill_s: Nonnegative = 0
    residual_tokens: Annotated[int, Field(ge=0)] = Field(default=0, description="newest tokens kept in 16 bits")
    skip_layers: Annotated[int, Field(ge=0)] = Field(default=0, description="layers left in 16 bits")


class SchedulerKeys(Keys):
    """vLLM's limits."""

    max_num_seqs: Count = 256
    max_num_batched_tokens: Count = 8192
    block_tokens: Count = 16
    chunked_prefill: bool = True
    prefix_caching: bool = False


class NoiseKeys(Keys):
    """See `noise.NoiseSpec`."""

    step: Nonnegative = 0
    start: Nonnegative = 0
    wander: Nonnegative = 0
    wander_s: Positive = 60
    drift_per_hour: Annotated[float, Field(allow_inf_nan=False)] = 0
    hiccups_per_minute: Nonnegative = 0
    hiccup_s: Positive = 0.05


class Profile(Keys):
    """One machine with one model."""

    name: str
    description: str = ""
    source: str = Field(default="", description="where the numbers come from, or that they are planted")
    device: str = Field(default="cuda", description="cuda or cpu: what the log's wording depends on")
    gpu: str | None = None
    version: str = Field(default="0.32.0", description="the vLLM whose log wording and metric names are used")
    model: ModelKeys
    memory: MemoryKeys
    step: StepKeys
    formats: dict[str, FormatKeys] = Field(min_length=1)
    scheduler: SchedulerKeys = SchedulerKeys()
    noise: NoiseKeys = NoiseKeys()

    @model_validator(mode="after")
    def _known_formats(self) -> "Profile":
        unknown = [name for name in self.formats if name not in KV_FORMATS]
        if unknown:
            raise ValueError(f"formats: {', '.join(unknown)}: should be among {', '.join(KV_FORMATS)}")
        thick = [name for name, keys in self.formats.items() if keys.skip_layers > self.model.layers]
        if thick:
            raise ValueError(f"formats.{thick[0]}.skip_layers: should be at most model.layers ({self.model.layers})")
        return self


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
    content = document.load(path, document.NATIVE).data
    try:
        return Profile.model_validate(content)
    except ValidationError as error:
        raise UserError(*(_complaint(path, entry) for entry in error.errors(include_url=False))) from error


def _complaint(path: Path, entry: Any) -> str:
    place = ".".join(map(str, entry["loc"]))
    plain = entry["type"] != "missing" and not isinstance(entry["input"], dict | list)
    value = f"{repr(entry['input'])[:60]}: " if plain else ""
    return f"{path}: {place}: {value}{entry['msg']}" if place else f"{path}: {value}{entry['msg']}"


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
