"""A profile and an arm's flags -> one emulated engine, ready to be stepped."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loadgen.emulator.cost import StepCost
from loadgen.emulator.model import Limits, Model
from loadgen.emulator.noise import Noise, NoiseSpec
from loadgen.emulator.profile import BASE_FORMAT, FormatKeys, Profile, full_bytes, step_cost, token_bytes
from loadgen.errors import UserError

ALIASES = {"auto": BASE_FORMAT, "fp8_e4m3": "fp8"}  # where a profile has no entry of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """One arm of an emulated engine: what is planted, in the engine's own terms."""

    profile: Profile
    kv_dtype: str  # key of profile.formats
    limits: Limits
    cost: StepCost
    noise: NoiseSpec
    max_model_len: int
    served_name: str
    kv_cache_bytes: float
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def format(self) -> FormatKeys:
        """The profile's own words on this arm's format."""
        return self.profile.formats[self.kv_dtype]

    @property
    def capacity_tokens(self) -> int:
        """Tokens that the cache holds."""
        return self.limits.blocks * self.limits.block_tokens

    def model(self, *, seed: tuple[int, ...] = (0,), machine_seed: tuple[int, ...] = (0,)) -> Model:
        """A fresh engine process. The same seeds give the same noise."""
        return Model(self.limits, self.cost, Noise(self.noise, seed=seed, machine_seed=machine_seed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag that an arm may set: how its text becomes a value, what a good one is, and what it does."""

    read: Callable[[str], Any]
    should: str
    meaning: str


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _share(text: str) -> float:
    number = float(text)
    if not 0 < number <= 1:
        raise ValueError(text)
    return number


def _switch(text: str) -> bool:
    return {"true": True, "false": False}[text]


FLAGS: Mapping[str, Flag] = {
    "kv-cache-dtype": Flag(
        read=str, should="a KV format of the profile", meaning="format of the cache; `auto`, the default, is bfloat16"
    ),
    "attention-backend": Flag(
        read=str, should="a backend of the format", meaning="in place of the format's own: see `other_backends`"
    ),
    "max-model-len": Flag(
        read=_whole,
        should="a whole number of tokens",
        meaning="longest prompt and output together; model.max_model_len",
    ),
    "max-num-seqs": Flag(
        read=_whole, should="a whole number of sequences", meaning="sequences running at once; scheduler.max_num_seqs"
    ),
    "max-num-batched-tokens": Flag(
        read=_whole, should="a whole number of tokens", meaning="tokens of a step; scheduler.max_num_batched_tokens"
    ),
    "block-size": Flag(
        read=_whole, should="a whole number of tokens", meaning="tokens of a block; scheduler.block_tokens"
    ),
    "kv-cache-memory-bytes": Flag(
        read=_whole, should="a whole number of bytes", meaning="the cache's memory itself; memory.kv_cache_bytes"
    ),
    "gpu-memory-utilization": Flag(
        read=_share, should="above 0 and at most 1", meaning="share of memory.total_bytes taken; memory.utilization"
    ),
    "enable-prefix-caching": Flag(read=_switch, should="true or false", meaning="scheduler.prefix_caching"),
    "enable-chunked-prefill": Flag(read=_switch, should="true or false", meaning="scheduler.chunked_prefill"),
    "served-model-name": Flag(read=str, should="a name", meaning="what /v1/models says; else `model`, else model.name"),
    "model": Flag(read=str, should="a name", meaning="see `served-model-name`"),
}


def emulated(profile: Profile, flags: Mapping[str, str], *, own: frozenset[str] = frozenset()) -> Emulated:
    """The engine that `profile` describes, started with `flags` (vLLM's names, see FLAGS).

    `own`: further flags that the caller reads itself. Raises UserError for an unknown flag, an impossible value, a
    format or backend that the profile does not have, limits that vLLM refuses, and a cache that cannot hold one
    sequence of max-model-len.
    """
    values = _values(flags, own)
    kv_dtype = _format(profile, str(values.get("kv-cache-dtype", "auto")))
    profile = _read_by(profile, kv_dtype, str(values.get("attention-backend", "auto")))
    longest = values.get("max-model-len", profile.model.max_model_len)
    cache_bytes = _cache_bytes(profile, values)
    return Emulated(
        profile=profile,
        kv_dtype=kv_dtype,
        limits=_limits(profile, kv_dtype, values, cache_bytes),
        cost=step_cost(profile, kv_dtype),
        noise=NoiseSpec(**profile.noise.model_dump()),
        max_model_len=longest,
        served_name=values.get("served-model-name", values.get("model", profile.model.name)),
        kv_cache_bytes=cache_bytes,
        flags=dict(flags),
    )


def _limits(profile: Profile, kv_dtype: str, values: Mapping[str, Any], cache_bytes: float) -> Limits:
    scheduler, keys = profile.scheduler, profile.formats[kv_dtype]
    budget = values.get("max-num-batched-tokens", scheduler.max_num_batched_tokens)
    # as vLLM's engine/arg_utils.py (0.32.0): its own default of the slots yields to the budget, one asked for does not
    batch = values.get("max-num-seqs", min(scheduler.max_num_seqs, budget))
    longest = values.get("max-model-len", profile.model.max_model_len)
    chunked = values.get("enable-chunked-prefill", scheduler.chunked_prefill)
    if batch > budget:
        raise UserError(f"max-num-seqs={batch}: should be at most max-num-batched-tokens ({budget})")
    if not chunked and longest > budget:
        raise UserError(
            f"max-num-batched-tokens={budget}: should be at least max-model-len ({longest}) without chunked prefill"
        )
    block = values.get("block-size", scheduler.block_tokens)
    each = token_bytes(profile, kv_dtype)
    window = keys.residual_tokens * max(0.0, full_bytes(profile) - each) * batch  # rings in 16 bits, one per slot
    blocks = int((cache_bytes - window) // (each * block))
    usable = max(0, blocks - 1) * block
    if usable < longest:
        raise UserError(
            f"profile {profile.name}: max-model-len {longest:,}: the {kv_dtype} cache holds {usable:,} tokens, less "
            "than one such sequence; lower max-model-len or give more memory"
        )
    return Limits(
        blocks=blocks,
        block_tokens=block,
        max_num_seqs=batch,
        max_num_batched_tokens=budget,
        chunked_prefill=chunked,
        prefix_caching=values.get("enable-prefix-caching", scheduler.prefix_caching),
        residual_tokens=keys.residual_tokens,
    )


def _values(flags: Mapping[str, str], own: frozenset[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    complaints = []
    for name, text in flags.items():
        if name in own:
            continue
        flag = FLAGS.get(name)
        if flag is None:
            complaints.append(f"{name}={text}: the emulator has no such flag; known: {', '.join(FLAGS)}")
            continue
        try:
            found[name] = flag.read(text)
        except (ValueError, KeyError):
            complaints.append(f"{name}={text}: should be {flag.should}")
    if complaints:
        raise UserError(*complaints)
    return found


def _format(profile: Profile, asked: str) -> str:
    for name in (asked, ALIASES.get(asked, asked)):
        if name in profile.formats:
            return name
    raise UserError(
        f"kv-cache-dtype={asked}: profile {profile.name} has no such format; it has {', '.join(profile.formats)}"
    )


def _read_by(profile: Profile, kv_dtype: str, backend: str) -> Profile:
    """The profile with the format as `backend` reads it."""
    keys = profile.formats[kv_dtype]
    if backend in ("auto", keys.backend):
        return profile
    if backend not in keys.other_backends:
        known = ", ".join((keys.backend, *keys.other_backends))
        raise UserError(f"attention-backend={backend}: profile {profile.name} reads {kv_dtype} through {known} only")
    other = keys.model_copy(update={**dict(keys.other_backends[backend]), "backend": backend})
    return profile.model_copy(update={"formats": {**profile.formats, kv_dtype: other}})


def _cache_bytes(profile: Profile, values: Mapping[str, Any]) -> float:
    memory, asked = profile.memory, values.get("kv-cache-memory-bytes")
    if isinstance(asked, int):
        return float(asked)
    if memory.kv_cache_bytes is not None:
        return memory.kv_cache_bytes
    share = values.get("gpu-memory-utilization", memory.utilization)
    total = memory.total_bytes or 0.0
    return total * float(share) - profile.model.weight_bytes - memory.reserved_bytes
