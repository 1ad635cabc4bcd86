"""What each request of a stage holds: its runs of prompt tokens and its output length. Pure.

Run keys: `u:STAGE:INDEX` for what no other request has (`u:STAGE:wINDEX` in the warm-up), `p:GROUP` for a shared
prefix, `b:STAGE:ID` for a trace's prefix block (`b:STAGE:SESSION:ID` where ids count within a session),
`s:STAGE:PLACE` for what a session's turn added. Those of a trace are shared within a stage only: a stage must not find
the blocks of the one before it in the server's prefix cache.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadgen.quantities import text
from loadgen.records import Run
from loadgen.workload import lengths
from loadgen.workload.fit import Turn
from loadgen.workload.model import Scenario, SharedPrefix, Stage
from loadgen.workload.prompts import UNIQUE
from loadgen.workload.seeding import generator

Draws = NDArray[np.int64]


class Content(NamedTuple):
    """A request without its place in the schedule."""

    runs: tuple[Run, ...]
    output_tokens: int


def drawn(
    scenario: Scenario, stage: Stage, count: int, *, warmup: bool = False
) -> tuple[list[Content], tuple[str, ...]]:
    """`count` requests of a stage whose lengths come from tables, and notes on what the bounds did to them."""
    specs = scenario.lengths_of(stage)
    if specs is None:
        raise ValueError(f"stage {stage.name} takes its lengths from a trace")
    work, purpose = scenario.workload, "warm-up " if warmup else ""
    most = work.max_input_tokens if work.fit == "drop" else None
    inputs = lengths.draw(specs[0], count, generator(scenario.seed, stage.name, f"{purpose}input_tokens"), most)
    outputs = lengths.draw(specs[1], count, generator(scenario.seed, stage.name, f"{purpose}output_tokens"))
    notes = []
    if most is not None and (share := lengths.share_within(specs[0], most)) < 1:
        notes.append(f"{text(1 - share, 'ratio')} of the given input_tokens lie above {most:,} and are left out")
    inputs, cut_inputs = _cut(inputs, work.max_input_tokens, "prompts")
    outputs, cut_outputs = _cut(outputs, work.max_output_tokens, "outputs")
    notes += cut_inputs + cut_outputs
    prefix = scenario.prefix_of(stage)
    short = 0 if prefix is None else int(np.count_nonzero(inputs <= prefix.tokens))
    if prefix is not None and short:
        notes.append(f"{short:,} of {count:,} prompts are no longer than the shared prefix and hold only its beginning")
    content = [
        Content(_runs(f"{stage.name}:{'w' if warmup else ''}{index}", index, tokens, prefix), output_tokens)
        for index, (tokens, output_tokens) in enumerate(zip(inputs.tolist(), outputs.tolist(), strict=True))
    ]
    return content, tuple(f"{stage.name}: {note}" for note in notes)


def of_turns(stage: str, turns: Sequence[Turn]) -> list[Content]:
    """The requests that a stage makes of a trace's turns, in their order."""
    known: dict[Run, Run] = {}

    def named(run: Run, index: int) -> Run:
        if run.key == UNIQUE:
            return Run(f"{UNIQUE}{stage}:{index}", run.tokens)
        return known.setdefault(run, Run(f"{run.key[:2]}{stage}:{run.key[2:]}", run.tokens))

    return [
        Content(tuple([named(run, index) for run in turn.runs]), turn.output_tokens) for index, turn in enumerate(turns)
    ]


def like_turns(seed: int, stage: str, turns: Sequence[Turn], count: int) -> list[Content]:
    """Warm-up requests with the lengths of turns chosen at random, and contents that no measured request has."""
    chosen = generator(seed, stage, "warm-up rows").integers(len(turns), size=count)
    return [
        Content((Run(f"{UNIQUE}{stage}:w{index}", turns[place].input_tokens),), turns[place].output_tokens)
        for index, place in enumerate(chosen.tolist())
    ]


def _cut(values: Draws, bound: int | None, what: str) -> tuple[Draws, list[str]]:
    cut = 0 if bound is None else int(np.count_nonzero(values > bound))
    if bound is None or not cut:
        return values, []
    return np.minimum(values, bound), [f"cut {cut:,} of {len(values):,} {what} to {bound:,} tokens"]


def _runs(owner: str, index: int, tokens: int, prefix: SharedPrefix | None) -> tuple[Run, ...]:
    # One token at least is the request's own, so that no two prompts are equal.
    shared = min(prefix.tokens, tokens - 1) if prefix is not None else 0
    own = Run(f"{UNIQUE}{owner}", tokens - shared)
    return (Run(f"p:{index % prefix.groups}", shared), own) if prefix is not None and shared else (own,)
