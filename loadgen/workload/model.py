"""The scenario file as a typed model: every key, what it means and its bounds.

`docs/scenarios.md` and the editors' JSON Schema are written from these descriptions (`workload/reference.py`).
"""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from loadgen import records
from loadgen.workload.fields import (
    Blocks,
    Count,
    Keys,
    Lengths,
    Rate,
    Seconds,
    Seed,
    Streams,
    Tokens,
    Variation,
    Warmup,
    wrong,
)
from loadgen.workload.grid import Grid
from loadgen.workload.lengths import shortest
from loadgen.workload.rules import Complaint, complaints
from loadgen.workload.source import TraceSource
from loadgen.workload.traffic import NAME, Class, Families, SharedPrefix, Traffic


class Workload(Traffic):
    """What requests look like, whatever stage sends them."""

    endpoint: Literal["completions", "chat"] = Field(
        default="completions", description="/v1/completions or the chat endpoint"
    )
    mix: tuple[Class, ...] | None = Field(
        default=None, description="several kinds of traffic at once, in place of the keys above", min_length=2
    )
    trace: TraceSource | None = Field(
        default=None, description="take lengths (and times, with speed) from a trace instead"
    )
    max_input_tokens: Tokens | None = Field(default=None, description="longest prompt the server can take; see fit")
    fit: Literal["drop", "cap"] = Field(
        default="drop",
        description="what becomes of prompts above max_input_tokens: drop leaves them out (trace rows are removed, "
        "tables are drawn at or below the bound), cap cuts them to it; either is counted in the plan's notes",
    )
    max_output_tokens: Tokens | None = Field(
        default=None,
        description="outputs above this are cut to it, as a server's own cap would; counted in the plan's notes",
    )


class Bursts(Keys):
    """Periods with traffic and silences in turn."""

    active: Seconds = Field(description="mean length of a period with traffic; rate is the mean over all of the time")
    silent: Seconds = Field(description="mean length of a silence; both lengths are exponentially distributed")


class Stage(Keys):
    """One way of sending: closed loop (concurrency), open loop (rate), or a trace's own times (speed)."""

    name: str = Field(pattern=NAME, max_length=40, description="letters, digits, dot, dash, underscore; unique")
    concurrency: Streams | None = Field(
        default=None, description="closed loop: requests kept in flight; of a trace or of sessions, sessions kept going"
    )
    rate: Rate | None = Field(
        default=None,
        description="open loop: requests per second, whatever comes back; of a trace or of sessions, those begun",
    )
    burstiness: Variation | None = Field(
        default=None,
        description="with rate: coefficient of variation of the gaps; 0 even, 1 Poisson (default)",
    )
    bursts: Bursts | None = Field(default=None, description="with rate: traffic that comes and goes")
    speed: Rate | None = Field(default=None, description="with a trace: its own times; 2 is twice as fast")
    requests: Count | None = Field(
        default=None,
        description="how many to send, of sessions about so many in whole sessions; together with duration whichever "
        "ends first",
    )
    duration: Seconds | None = Field(
        default=None,
        description="closed loop: stop sending after this (arms then do equal time, not equal work); "
        "rate, speed: length of the schedule",
    )
    warmup: Warmup | None = Field(
        default=None,
        description="requests sent first and not measured; default one wave: concurrency, or one second's worth of "
        "the rate and at least 2",
    )
    input_tokens: Lengths | None = Field(default=None, description="instead of the workload's")
    output_tokens: Lengths | None = Field(default=None, description="instead of the workload's")
    shared_prefix: SharedPrefix | None = Field(default=None, description="instead of the workload's; null for none")


class Cell(Stage):
    """A stage that a grid makes."""

    context: Tokens


class Limit(Keys):
    """A cap that protects a shared endpoint; it delays requests and does not shape the load."""

    requests_per_second: Rate = Field(description="never send more than this")


class SloKeys(Keys):
    """What a request must meet to count towards goodput."""

    ttft: Seconds | None = Field(default=None, description="time to first token")
    tpot: Seconds | None = Field(default=None, description="time per output token after the first")
    e2e: Seconds | None = Field(default=None, description="whole request")

    def record(self) -> records.Slo:
        """The same bounds as the record that analysis reads."""
        return records.Slo(ttft_s=self.ttft, tpot_s=self.tpot, e2e_s=self.e2e)


class Scenario(Keys):
    """A named traffic: what is sent, in which stages, how often."""

    name: str = Field(pattern=NAME, max_length=60, description="letters, digits, dot, dash, underscore")
    description: str = Field(default="", description="one sentence: what it stresses")
    source: str = Field(default="", description="where its numbers come from")
    seed: Seed = Field(default=1, description="lengths, times and contents follow from it")
    repeats: Blocks = Field(default=4, description="blocks per arm; a comparison needs at least 2")
    workload: Workload = Field(description="what requests look like")
    stages: tuple[Stage, ...] = Field(
        default=(), description="sent one after the other; required without a grid", json_schema_extra={"minItems": 1}
    )
    grid: Grid | None = Field(
        default=None, description="a stage for each of several contexts and concurrencies, after the other stages"
    )
    limit: Limit | None = Field(default=None, description="a cap on the request rate")
    slo: SloKeys = Field(default=SloKeys(), description="bounds for goodput: seconds, or with a unit (200ms)")

    @model_validator(mode="wrap")
    @classmethod
    def _every_complaint_at_once(cls, data: Any, handler: ModelWrapValidatorHandler["Scenario"]) -> "Scenario":
        found = [_details(complaint) for complaint in complaints(data)]
        try:
            scenario = handler(data)
        except ValidationError as error:
            found += [_again(line) for line in error.errors(include_url=False)]
        else:
            found += [_details(complaint) for complaint in scenario._unreachable()]
        if found:
            raise ValidationError.from_exception_data(cls.__name__, found)
        return scenario

    @property
    def sent(self) -> tuple[Stage, ...]:
        """All stages, the grid's among them."""
        return (*self.stages, *self._cells())

    def place(self, stage: Stage) -> str:
        """Where a stage stands, for messages: "x: stages[1] (saturated)"."""
        return f"{self.name}: stages[{self.sent.index(stage)}] ({stage.name})"

    def _cells(self) -> list[Cell]:
        grid = self.grid
        return (
            []
            if grid is None
            else [
                Cell(
                    name=f"{context}x{streams}",
                    context=context,
                    concurrency=streams,
                    requests=grid.waves * streams,
                    warmup=grid.warmup,
                    input_tokens=context,
                    output_tokens=grid.output_tokens,
                    shared_prefix=None,
                )
                for context, streams in grid.cells(self.workload.max_input_tokens)
            ]
        )

    def lengths_of(self, stage: Stage) -> tuple[Lengths, Lengths] | None:
        """Input and output lengths of a stage; None where they come from the trace's rows, from sessions or a mix."""
        if stage.input_tokens is None and self._composed:
            return None
        inputs = stage.input_tokens if stage.input_tokens is not None else self.workload.input_tokens
        outputs = stage.output_tokens if stage.output_tokens is not None else self.workload.output_tokens
        return None if inputs is None or outputs is None else (inputs, outputs)

    @property
    def _composed(self) -> bool:
        work = self.workload
        return work.trace is not None or work.sessions is not None or work.mix is not None

    def families_of(self, stage: Stage) -> Families | None:
        """The families of a stage that has the workload's prompts."""
        return self.workload.families if stage.input_tokens is None else None

    def prefix_of(self, stage: Stage) -> SharedPrefix | None:
        """The shared prefix of a stage: its own where it names one (null included), else the workload's."""
        return stage.shared_prefix if "shared_prefix" in stage.model_fields_set else self.workload.shared_prefix

    def _unreachable(self) -> list[Complaint]:
        bound = self.workload.max_input_tokens
        found = [
            Complaint(place, f"should go down to workload.max_input_tokens ({bound}) at least")
            for place, spec in self._prompts()
            if bound is not None and spec is not None and self.workload.fit == "drop" and shortest(spec) > bound
        ]
        if self.grid is not None and not self.grid.cells(bound):
            found.append(Complaint(("grid",), "should have a cell within max_tokens and workload.max_input_tokens"))
        cells = {cell.name for cell in self._cells()}
        for number, stage in enumerate(self.stages):
            if stage.name in cells:
                found.append(
                    Complaint(("stages", number, "name"), "should not be that of a cell of the grid", stage.name)
                )
        return found

    def _prompts(self) -> Iterator[tuple[tuple[str | int, ...], Lengths | None]]:
        """Every table of prompt lengths with its place in the file."""
        kinds: list[tuple[tuple[str | int, ...], Traffic]] = [(("workload",), self.workload)]
        kinds += [(("workload", "mix", number), kind) for number, kind in enumerate(self.workload.mix or ())]
        for place, kind in kinds:
            yield (*place, "input_tokens"), kind.input_tokens
            if kind.sessions is not None:
                yield (*place, "sessions", "first_tokens"), kind.sessions.first_tokens
        for number, stage in enumerate(self.stages):
            yield ("stages", number, "input_tokens"), stage.input_tokens


def _details(complaint: Complaint) -> InitErrorDetails:
    return InitErrorDetails(type=wrong(complaint.should), loc=complaint.place, input=complaint.value)


def _again(line: Any) -> InitErrorDetails:
    context = {"should": line["msg"], "kind": line["type"]}
    kind = PydanticCustomError("scenario", "{should}", context)
    return InitErrorDetails(type=kind, loc=line["loc"], input=line["input"])
