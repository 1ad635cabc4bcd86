"""What loadgen knows about an engine, as data: nothing here talks to one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from re import Pattern
from typing import Literal

ForcedField = bool | Literal["output_tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPatterns:
    """How to read an engine's log. Every pattern is searched in one message, stripped of its log header.

    `version` (group 1). `backends` (group `name`): the decoder's attention backend, and never a vision encoder's.
    `backend_details`: backend -> messages that add to its line.
    `backend_names`: wording in the log -> canonical name. `capacity_tokens` / `capacity_blocks` (group 1; `device`
    where the wording tells it). `kv_memory_gib` (group 1). `effective_dtype` (group 1): what the worker really stores.
    `settings`: messages that dump the configuration. `telling`: messages that belong in a report.
    """

    version: tuple[Pattern[str], ...] = ()
    backends: tuple[Pattern[str], ...] = ()
    backend_details: Mapping[str, Pattern[str]] = field(default_factory=dict)
    backend_names: Mapping[str, str] = field(default_factory=dict)
    capacity_tokens: tuple[Pattern[str], ...] = ()
    capacity_blocks: tuple[Pattern[str], ...] = ()
    kv_memory_gib: tuple[Pattern[str], ...] = ()
    effective_dtype: tuple[Pattern[str], ...] = ()
    settings: tuple[Pattern[str], ...] = ()
    telling: tuple[Pattern[str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWrong:
    """A combination that an engine accepts and then does not do. `versions` is [from, to)."""

    from_version: tuple[int, ...]
    to_version: tuple[int, ...]
    device: str | None
    dtypes: frozenset[str]
    sentence: str
    when_log_has: Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A backend that prints no line: what to assume when a whole log names none. `versions` is [from, to)."""

    from_version: tuple[int, ...]
    to_version: tuple[int, ...]
    device: str
    backend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine.

    `module`: what its Python runs to serve; None where loadgen cannot start it. `metrics`: canonical name (see
    `records.EngineScrape`) -> names of the samples by version, the first that is there wins; empty where the engine
    has no known metrics. `rank_label`: the label that tells data-parallel ranks apart. `forces_length`: request fields
    that make the output exactly as long as asked; a value "output_tokens" stands for that number. `chat_limit`: the
    field that limits a chat's output. `config_metric`: a gauge whose labels are the cache's configuration.
    `kv_dtype_flag`: the flag that sets the KV cache's type. `needs_model`: False where an arm needs no model named.
    `owner`: what /v1/models says of a served model's owner, where only this engine says so.
    """

    name: str
    label: str
    module: str | None = None
    package: str | None = None
    ready_path: str = "/health"
    metrics_path: str = "/metrics"
    version_path: str | None = None
    metrics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rank_label: str = "engine"
    config_metric: str | None = None
    takes_token_ids: bool = False
    forces_length: Mapping[str, ForcedField] = field(default_factory=dict)
    chat_limit: str = "max_tokens"
    done_sent: bool = True
    takes_cache_salt: bool = False
    kv_dtype_flag: str | None = None
    needs_model: bool = True
    owner: str | None = None
    default_block_tokens: int | None = None
    log: LogPatterns = field(default_factory=LogPatterns)
    silences: tuple[Silence, ...] = ()
    known_wrong: tuple[KnownWrong, ...] = ()
