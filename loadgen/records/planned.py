"""What is planned: requests, stages, traces, and what prompts are made of."""

from typing import Literal

import msgspec

from loadgen.records.record import Record


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
    after: tuple[int, ...] | None = None  # indices, all lower, of requests that must have ended before this is sent
    think_s: float = 0.0  # after the last of them ended

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


class Reuse(Record, frozen=True, kw_only=True):
    """The share of a stage's prompt tokens that a prefix cache could give, one request after the other in plan order.

    `ratios[k]`: an unlimited cache that works in blocks of `block_tokens[k]` tokens (1: every common token).
    `lru_ratios[k][c]`: the same with room for `capacities_tokens[c]` tokens, prompts and outputs, that forgets what was
    used longest ago; empty where it was not computed. Requests that run at the same time may find less.
    """

    block_tokens: tuple[int, ...]
    ratios: tuple[float, ...]
    capacities_tokens: tuple[int, ...] = ()
    lru_ratios: tuple[tuple[float, ...], ...] = ()


class StageSpec(Record, frozen=True, kw_only=True):
    """How one stage sends. Closed loop: `concurrency`, in sessions. Open loop: requests carry `due_s`, or `after`."""

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
    context_tokens: int | None = None  # prompt tokens of all requests, of a cell of a grid
    sessions: int | None = None  # sets of requests that wait for one another; None where none waits
    reuse: Reuse | None = None  # None where no two prompts begin alike


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
    """One request of a production trace, in the project's units. `traces.rows.Row` says what each field means."""

    at_s: float  # since the trace's first row
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()  # chained prefix-block ids: same id = same whole prefix up to here
    block_tokens: int | None = None
    id: str | None = None
    session: str | None = None
    turn: int | None = None
    after: tuple[str, ...] = ()  # ids of rows; with a session and none of them: the session's row before
    think_s: float | None = None
    prefix_tokens: int | None = None
    cached_tokens: int | None = None
    kind: str | None = None
    duration_s: float | None = None


class Trace(Record, frozen=True, kw_only=True):
    """A trace as read: rows in order of time. rows_read == len(rows) + sum(dropped.values())."""

    source: str
    format: str
    rows: tuple[TraceRow, ...]
    rows_read: int
    dropped: dict[str, int] = msgspec.field(default_factory=dict)  # reason -> rows
    notes: tuple[str, ...] = ()  # what a reader should know, e.g. "12 rows were out of order and have been sorted"
    block_scope: Literal["global", "session"] = "global"  # "session": equal ids of two sessions are different blocks
    time_quantum_s: float | None = None  # the step of its clock, where that is coarse
    sha256: str | None = None  # over the file as it was read


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
