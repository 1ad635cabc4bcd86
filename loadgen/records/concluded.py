"""What is concluded: estimates, differences, findings, and the report made of them."""

from typing import Literal

import msgspec

from loadgen.records.planned import Role, Slo, StageSpec
from loadgen.records.record import Record
from loadgen.records.seen import ArmSpec, HostFacts, ServerFacts

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


class Cell(Record, frozen=True, kw_only=True):
    """One quantity of one cell of a grid. `verdict` holds with all cells of the grid in view (Holm)."""

    stage: str
    context_tokens: int
    concurrency: int
    base: Estimate
    test: Estimate
    ratio: Estimate  # test / base
    verdict: Verdict


class BreakEven(Record, frozen=True, kw_only=True):
    """Where along context the ratio crosses 1 at one concurrency, between cells that are decided.

    `contexts`: of each crossing, shortest first, interpolated between cells; its interval is where those of the ratios
    cross 1. `shortest`, `longest`: what the first and the last decided cell say; None where no cell is decided.
    """

    concurrency: int
    contexts: tuple[Estimate, ...]
    shortest: Literal["better", "worse"] | None
    longest: Literal["better", "worse"] | None
    said: str  # "worse below 7,010 tokens (6,600–7,400), better above"


class GridMap(Record, frozen=True, kw_only=True):
    """One quantity over a grid of contexts and concurrencies. `cells`: those that were sent, in the grid's order."""

    quantity: str
    contexts: tuple[int, ...]
    concurrency: tuple[int, ...]
    cells: tuple[Cell, ...]
    break_even: tuple[BreakEven, ...]  # by concurrency


class Headline(Record, frozen=True, kw_only=True):
    """The answer in words: for one stream, for saturation, for an open loop, for all cells of a grid together."""

    role: Role | Literal["grid"]
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
    simulated: bool = False  # an emulator stood in for the engine
    virtual_time: bool = False  # and no server ran, no client: time was computed
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
    traffic: tuple[Check, ...] = ()
    maps: tuple[GridMap, ...] = ()  # of a grid's cells
    curves: tuple[Curve, ...]
    warnings: tuple[str, ...]
    client_host: HostFacts | None = None
    packages: dict[str, str] = msgspec.field(default_factory=dict)
    plan_notes: tuple[str, ...] = ()
    slo: Slo = Slo()
