"""The frozen records that cross rooms: what is planned, what was seen, what is concluded.

Instants (`*_at_s`, `*_s` on samples and scrapes) are float seconds since the run's origin on one monotonic
clock; durations are derived, never stored. `None` means "not known", never zero. On disk a record is one line
of JSON (msgspec); unknown fields are ignored when reading, so that older programs read newer runs.
"""

from typing import Literal

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen, slotted, keyword-only record."""


# --- planned -------------------------------------------------------------------------------------------------


class Run(msgspec.Struct, frozen=True, array_like=True):
    """A run of `tokens` prompt tokens whose content is a pure function of (seed, salt, `key`)."""

    key: str
    tokens: int


class Request(Record, frozen=True, kw_only=True):
    """One request as planned. Two requests that share a run's key share those tokens (a common prefix)."""

    index: int  # position within its stage, from 0; warm-up requests count apart, from 0
    due_s: float | None = None  # seconds after the stage's start; None in a closed loop
    runs: tuple[Run, ...]
    output_tokens: int
    after: int | None = None  # index of the request that must have ended before this one is sent
    think_s: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        """Exact prompt length in tokens."""
        return sum(run.tokens for run in self.runs)


Role = Literal["one_stream", "saturated", "open_loop"]


class Slo(Record, frozen=True, kw_only=True):
    """What a request must meet to count towards goodput; None = no bound."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


class StageSpec(Record, frozen=True, kw_only=True):
    """How one stage sends. Closed loop: `concurrency`. Open loop: requests carry `due_s`."""

    name: str
    role: Role
    concurrency: int | None = None
    rate_per_s: float | None = None
    burstiness_cv: float | None = None
    speed: float | None = None
    duration_s: float | None = None  # stop sending after this; then arms do equal time, not equal work
    limit_per_s: float | None = None  # asyncio-throttle cap
    planned: int = 0
    warmup: int = 0


class StagePlan(Record, frozen=True, kw_only=True):
    """A stage and its requests, in sending order. `warmup` is driven first, to its end, and not measured."""

    spec: StageSpec
    warmup: tuple[Request, ...]
    requests: tuple[Request, ...]


class Plan(Record, frozen=True, kw_only=True):
    """Everything that will be sent: equal for every arm. Contents vary by the salt of the block alone."""

    scenario: str
    seed: int
    digest: str  # over stages, lengths, due times and run keys; not over salts
    endpoint: Literal["completions", "chat"] = "completions"
    stages: tuple[StagePlan, ...]
    notes: tuple[str, ...] = ()  # e.g. "dropped 12 of 400 trace rows: input_tokens > 1500"


class TraceRow(Record, frozen=True, kw_only=True):
    """One request of a production trace, in the project's units."""

    at_s: float  # since the trace's first row
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()  # chained prefix-block ids: same id = same whole prefix up to here
    block_tokens: int | None = None


class Trace(Record, frozen=True, kw_only=True):
    """A trace as read: rows in order of time. rows_read == len(rows) + sum(dropped.values())."""

    source: str
    format: str
    rows: tuple[TraceRow, ...]
    rows_read: int
    dropped: dict[str, int] = {}  # reason -> rows
    notes: tuple[str, ...] = ()  # what a reader should know, e.g. "12 rows were out of order and have been sorted"


class Vocabulary(Record, frozen=True, kw_only=True):
    """What prompts are made of on one server, so that their token counts are exact without a tokenizer.

    `token_ids`: ids drawn from [low, high). `words`: each word adds exactly one token when joined by spaces, and
    a prompt of n words has n + overhead_tokens tokens (chat template, BOS).
    """

    kind: Literal["token_ids", "words"]
    low: int = 0
    high: int = 0
    words: tuple[str, ...] = ()
    overhead_tokens: int = 0


# --- seen ----------------------------------------------------------------------------------------------------

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
    flags: dict[str, str] = {}
    shared_flags: dict[str, str] = {}
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
    packages: dict[str, str] = {}
    plan_notes: tuple[str, ...] = ()


class Experiment(Record, frozen=True, kw_only=True):
    """A run directory, read whole."""

    manifest: ExperimentManifest
    blocks: tuple[Block, ...]
    path: str


# --- concluded -----------------------------------------------------------------------------------------------

Verdict = Literal["better", "worse", "no difference shown", "cannot tell"]


class Estimate(Record, frozen=True, kw_only=True):
    """A figure with its interval. `lo`/`hi` are None where the sample cannot carry one; warnings say why."""

    center: float | None
    lo: float | None = None
    hi: float | None = None
    confidence: float = 0.95
    n: int = 0
    warnings: tuple[str, ...] = ()


class QuantitySummary(Record, frozen=True, kw_only=True):
    """One quantity of one stage on one arm, over its blocks. `quantity` is a key of `quantities.QUANTITIES`."""

    quantity: str
    stage: str
    arm: str
    estimate: Estimate
    by_block: tuple[float | None, ...] = ()


class Difference(Record, frozen=True, kw_only=True):
    """Test against base. `ratio` = test / base."""

    quantity: str
    stage: str
    base: Estimate
    test: Estimate
    ratio: Estimate
    verdict: Verdict
    detectable_ratio: float | None = None  # the smallest effect that this many blocks could have shown
    blocks_needed: int | None = None  # per arm, where more would decide
    note: str = ""


class Line(Record, frozen=True, kw_only=True):
    """gap(context) = intercept + slope x context, of one arm's one-stream decode."""

    arm: str
    intercept_s: Estimate
    slope_s_per_token: Estimate
    contexts: tuple[float, ...] = ()  # binned points to draw: context tokens, median gap, its quartiles
    gaps_s: tuple[float, ...] = ()
    gaps_lo_s: tuple[float, ...] = ()
    gaps_hi_s: tuple[float, ...] = ()


class Decomposition(Record, frozen=True, kw_only=True):
    """Where the quantized format gains and where it loses, from one stream."""

    stage: str
    base: Line
    test: Line
    intercept_difference_s: Estimate
    slope_ratio: Estimate
    break_even_tokens: Estimate
    break_even: str  # one sentence: "fp8 pays above 7,010 tokens", "never within 0..2,048", "not determined"
    share_above: float | None = None  # share of this traffic's decoded tokens above the break-even
    warnings: tuple[str, ...] = ()


class Figure(Record, frozen=True, kw_only=True):
    """A piece of evidence: what, how much, and where it was read."""

    label: str
    value: str
    source: str = ""


class Finding(Record, frozen=True, kw_only=True):
    """One of the four causes, judged."""

    cause: Literal["backend", "conversion", "short context", "unused memory"]
    verdict: Literal["holds", "does not hold", "cannot tell", "not observable"]
    claim: str
    evidence: tuple[Figure, ...] = ()
    advice: str = ""


class Check(Record, frozen=True, kw_only=True):
    """One line of the checklist that a trustworthy comparison must pass."""

    name: str
    passed: bool | None  # None: not observable
    figure: str


class Headline(Record, frozen=True, kw_only=True):
    """The answer in words, for one stream or for saturation."""

    role: Role
    stage: str
    verdict: Literal["pays", "does not pay", "trade-off", "no difference shown", "cannot tell"]
    sentence: str


class Curve(Record, frozen=True, kw_only=True):
    """A drawn series: one quantity over time or over a distribution's quantiles."""

    quantity: str  # key of QUANTITIES, or a scrape gauge's name
    kind: Literal["time", "quantile"]
    stage: str
    arm: str
    block: int
    x: tuple[float, ...]  # seconds since the stage's start, or quantile in 0..1
    y: tuple[float, ...]


class ArmReport(Record, frozen=True, kw_only=True):
    """One arm in the report."""

    name: str
    spec: ArmSpec
    facts: ServerFacts
    blocks: int
    requests: dict[str, tuple[int, int, int, int]]  # stage -> planned, sent, ok, failed
    failures: dict[str, int]  # kind -> count


class Report(Record, frozen=True, kw_only=True):
    """A renderer's only argument. `test` is None for a run of one arm: then nothing is compared."""

    schema: int = 1
    loadgen: str
    title: str
    path: str
    command: str
    scenario: str
    scenario_text: str
    started_at: str
    base: str
    test: str | None
    order: tuple[str, ...]  # arm name by block
    restart: str
    simulated: bool = False
    headlines: tuple[Headline, ...]
    arms: tuple[ArmReport, ...]
    stages: tuple[StageSpec, ...]
    summaries: tuple[QuantitySummary, ...]
    differences: tuple[Difference, ...]
    decomposition: Decomposition | None
    findings: tuple[Finding, ...]
    checklist: tuple[Check, ...]
    unintended: tuple[str, ...]
    innocence: tuple[Check, ...]
    curves: tuple[Curve, ...]
    warnings: tuple[str, ...]
    client_host: HostFacts | None = None
    packages: dict[str, str] = {}
    plan_notes: tuple[str, ...] = ()
