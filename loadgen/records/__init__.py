"""The frozen records that cross rooms: what is planned, what was seen, what is concluded.

Instants (`*_at_s`, `*_s` on samples and scrapes) are float seconds since the run's origin on one monotonic
clock; durations are derived, never stored. `None` means "not known", never zero. On disk a record is one line
of JSON (msgspec); unknown fields are ignored when reading, so that older programs read newer runs.
"""

from loadgen.records.concluded import (
    ArmReport as ArmReport,
    BreakEven as BreakEven,
    Cell as Cell,
    Check as Check,
    Curve as Curve,
    Decomposition as Decomposition,
    Difference as Difference,
    Estimate as Estimate,
    Figure as Figure,
    Finding as Finding,
    GridMap as GridMap,
    Headline as Headline,
    Line as Line,
    QuantitySummary as QuantitySummary,
    Report as Report,
    Verdict as Verdict,
)
from loadgen.records.planned import (
    Plan as Plan,
    Request as Request,
    Reuse as Reuse,
    Role as Role,
    Run as Run,
    Slo as Slo,
    StagePlan as StagePlan,
    StageSpec as StageSpec,
    Trace as Trace,
    TraceRow as TraceRow,
    Vocabulary as Vocabulary,
)
from loadgen.records.record import Record as Record
from loadgen.records.seen import (
    ArmSpec as ArmSpec,
    BackendSeen as BackendSeen,
    Block as Block,
    BlockEnd as BlockEnd,
    EngineScrape as EngineScrape,
    Experiment as Experiment,
    ExperimentManifest as ExperimentManifest,
    Failure as Failure,
    FailureKind as FailureKind,
    Health as Health,
    HostFacts as HostFacts,
    Manifest as Manifest,
    Sample as Sample,
    Scrape as Scrape,
    ServerFacts as ServerFacts,
    StageMark as StageMark,
)
from loadgen.records.sessions import sessions as sessions
