"""What was seen: samples, scrapes, facts, blocks, whole experiments."""

from typing import Literal

import msgspec

from loadgen.records.planned import Slo, StageSpec
from loadgen.records.record import Record

FailureKind = Literal["connect", "timeout", "status", "protocol", "truncated", "server_error", "stopped"]


class Failure(Record, frozen=True, kw_only=True):
    """Why a request did not end well. `detail` is short and holds no secrets."""

    kind: FailureKind
    detail: str = ""


class Sample(Record, frozen=True, kw_only=True):
    """One request as it happened."""

    index: int
    stage: str
    warmup: bool = False
    due_s: float | None = None  # on the run's clock, not the stage's
    sent_s: float
    first_byte_s: float | None = None
    events_s: tuple[float, ...] = ()  # arrival of each event with content, reasoning or tool-call text
    end_s: float
    planned_prompt_tokens: int
    planned_output_tokens: int
    prompt_tokens: int | None = None  # as the server reported
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    status: int | None = None
    retries: int = 0  # an idle keep-alive connection that the server had closed, tried again
    retry_after_s: float | None = None
    failure: Failure | None = None
    text_digest: str | None = None

    @property
    def ok(self) -> bool:
        """True if the request ended as the protocol says a good one ends."""
        return self.failure is None

    @property
    def lag_s(self) -> float | None:
        """How late it was sent; None in a closed loop."""
        return None if self.due_s is None else self.sent_s - self.due_s

    @property
    def ttft_s(self) -> float | None:
        """From sending to the first event with content."""
        return self.events_s[0] - self.sent_s if self.events_s else None

    @property
    def ttft_from_due_s(self) -> float | None:
        """From the due time to the first event with content (free of coordinated omission)."""
        return self.events_s[0] - self.due_s if self.events_s and self.due_s is not None else None

    @property
    def e2e_s(self) -> float:
        """From sending to the end of the response."""
        return self.end_s - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        """(last event - first event) / (output tokens - 1); None below two tokens."""
        tokens = self.output_tokens if self.output_tokens is not None else len(self.events_s)
        if tokens < 2 or len(self.events_s) < 2:
            return None
        return (self.events_s[-1] - self.events_s[0]) / (tokens - 1)


class StageMark(Record, frozen=True, kw_only=True):
    """When a stage (or its warm-up) ran within a block, and what became of its requests.

    planned = sent + unsent and sent = ok + failed, always.
    """

    stage: str
    warmup: bool = False
    started_s: float
    ended_s: float
    planned: int
    sent: int
    unsent: int
    ok: int
    failed: int
    stopped: str | None = None  # "interrupted" | "duration" | None


class EngineScrape(Record, frozen=True, kw_only=True):
    """Canonical quantities of one engine rank at one instant; absent key = not exported.

    Gauges: kv_usage_ratio, running, waiting. Counters, raw: preemptions, prompt_tokens, generation_tokens,
    prefix_queries, prefix_hits, requests_finished, iteration_tokens_sum, iteration_tokens_count, ttft_sum_s,
    ttft_count, itl_sum_s, itl_count, queue_sum_s, queue_count, prefill_sum_s, prefill_count, decode_sum_s,
    decode_count.
    """

    engine: str
    values: dict[str, float]


class Scrape(Record, frozen=True, kw_only=True):
    """One reading of /metrics."""

    at_s: float
    took_s: float
    engines: tuple[EngineScrape, ...] = ()
    failure: str | None = None


class Health(Record, frozen=True, kw_only=True):
    """The client's own state over the last interval: is it innocent of what it measured?"""

    at_s: float
    interval_s: float
    loop_lag_max_s: float
    cpu_s: float  # CPU seconds this process used in the interval
    rss_bytes: int
    in_flight: int


class BackendSeen(Record, frozen=True, kw_only=True):
    """An attention backend and how it was learned."""

    name: str
    how: Literal["log", "endpoint", "assumed", "unknown"]
    line: str | None = None


class HostFacts(Record, frozen=True, kw_only=True):
    """The machine a server runs on (None where the server is elsewhere and does not tell)."""

    cpu: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    gpus: tuple[str, ...] = ()
    gpu_memory_bytes: int | None = None
    driver: str | None = None
    cuda: str | None = None
    os: str | None = None


class ServerFacts(Record, frozen=True, kw_only=True):
    """What a server really is, read back from it: endpoints and log, never the flags that it was given."""

    engine: str
    version: str | None = None
    url: str | None = None
    model: str | None = None
    max_model_len: int | None = None
    argv: tuple[str, ...] = ()
    kv_dtype_asked: str | None = None
    kv_dtype: str | None = None  # in effect
    kv_dtype_how: Literal["log", "endpoint", "assumed", "unknown"] = "unknown"
    capacity_tokens: int | None = None
    capacity_how: Literal["log", "endpoint", "assumed", "unknown"] = "unknown"
    block_tokens: int | None = None
    kv_memory_bytes: int | None = None
    bytes_per_token: float | None = None
    max_num_seqs: int | None = None
    prefix_caching: bool | None = None
    backends: tuple[BackendSeen, ...] = ()
    device: str | None = None  # "cpu" | "cuda" | "rocm" | ...
    warnings: tuple[str, ...] = ()  # the server's own telling lines
    ready_after_s: float | None = None
    host: HostFacts | None = None
    profile: str | None = None  # of an emulated engine: what its figures follow from
    profile_source: str | None = None  # where that profile's numbers come from


class Manifest(Record, frozen=True, kw_only=True):
    """What one block is: written when it starts."""

    schema: int = 1
    loadgen: str
    scenario: str
    plan_digest: str
    seed: int
    salt: str
    arm: str
    repeat: int  # 0-based, within the arm
    order: int  # 0-based, within the experiment
    restart: Literal["each-block", "never"]
    url: str
    started_at: str  # the only wall-clock time: ISO 8601, UTC
    stages: tuple[StageSpec, ...]
    shard: tuple[int, int] = (0, 1)


class BlockEnd(Record, frozen=True, kw_only=True):
    """How a block ended: written last. A block without one was cut off."""

    ended_s: float
    how: Literal["complete", "interrupted", "server_died", "client_error"]
    detail: str = ""


class Block(Record, frozen=True, kw_only=True):
    """One pass over all stages on one arm: the unit of repetition."""

    manifest: Manifest
    facts: ServerFacts
    marks: tuple[StageMark, ...]
    samples: tuple[Sample, ...]
    scrapes: tuple[Scrape, ...]
    health: tuple[Health, ...]
    end: BlockEnd | None


class ArmSpec(Record, frozen=True, kw_only=True):
    """An arm as it was asked for; `flags` are what this arm alone sets."""

    name: str
    engine: str
    flags: dict[str, str] = msgspec.field(default_factory=dict)
    shared_flags: dict[str, str] = msgspec.field(default_factory=dict)
    url: str | None = None  # a server that already runs
    log: str | None = None


class ExperimentManifest(Record, frozen=True, kw_only=True):
    """What was asked for as a whole: written once, before the first block."""

    schema: int = 1
    loadgen: str
    command: str  # as typed, secrets removed
    scenario: str
    scenario_text: str
    plan_digest: str
    arms: tuple[ArmSpec, ...]  # the first is the base
    order: tuple[int, ...]  # arm number by block
    restart: Literal["each-block", "never"]
    slo: Slo = Slo()
    started_at: str
    client_host: HostFacts | None = None
    packages: dict[str, str] = msgspec.field(default_factory=dict)
    plan_notes: tuple[str, ...] = ()
    noise_seed: int | None = None  # virtual time: no server ran, no client; the noise follows from this. None: they did
    profiles: dict[str, str] = msgspec.field(default_factory=dict)  # virtual time: profile as asked for -> its YAML


class Experiment(Record, frozen=True, kw_only=True):
    """A run directory, read whole."""

    manifest: ExperimentManifest
    blocks: tuple[Block, ...]
    path: str
