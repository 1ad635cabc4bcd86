"""What each request of a stage holds: its runs of prompt tokens and its output length. Pure.

Run keys: `u:STAGE:INDEX` for what no other request has (`u:STAGE:wINDEX` in the warm-up), `p:GROUP` for a shared
prefix (`p:CLASS:GROUP` in a mix), `b:STAGE:ID` for a trace's prefix block (`b:STAGE:SESSION:ID` where ids count within
a session), `s:STAGE:...` for what a session's turn added and for what a family has in common. But for shared prefixes
they are shared within a stage only: a stage must not find the blocks of the one before it in the server's cache.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadgen.quantities import text
from loadgen.records import Run
from loadgen.workload import lengths
from loadgen.workload.families import Family, dealt
from loadgen.workload.fields import Lengths
from loadgen.workload.fit import Turn
from loadgen.workload.model import Scenario, Stage, Workload
from loadgen.workload.prompts import ADDED, UNIQUE
from loadgen.workload.seeding import generator
from loadgen.workload.traffic import Families, SharedPrefix

Draws = NDArray[np.int64]
PREFIX = "p:"


class Content(NamedTuple):
    """A request without its place in the schedule."""

    runs: tuple[Run, ...]
    output_tokens: int


class Kind(NamedTuple):
    """Requests of one kind. `purpose`: what its draws are for, and the beginning of its notes' names."""

    inputs: Lengths
    outputs: Lengths
    prefix: SharedPrefix | None
    families: Families | None
    purpose: tuple[str, ...]
    name: str = ""  # of its class in a mix

    @property
    def owner(self) -> str:
        """What a run's key begins with, so that classes share nothing."""
        return f"{self.name}:" if self.name else ""


def kind_of(scenario: Scenario, stage: Stage) -> Kind:
    """The one kind of a stage whose lengths come from tables."""
    specs = scenario.lengths_of(stage)
    if specs is None:
        raise ValueError(f"stage {stage.name} takes its prompts from a trace, from sessions or from a mix")
    return Kind(*specs, scenario.prefix_of(stage), scenario.families_of(stage), (stage.name,))


def drawn(kind: Kind, count: int, scenario: Scenario, *, warmup: bool = False) -> tuple[list[Turn], tuple[str, ...]]:
    """`count` requests whose lengths come from tables, and notes on what the bounds did to them."""
    work, purpose = scenario.workload, "warm-up " if warmup else ""

    def rng(what: str) -> np.random.Generator:
        return generator(scenario.seed, *kind.purpose, f"{purpose}{what}")

    most = work.max_input_tokens if work.fit == "drop" else None
    inputs = lengths.draw(kind.inputs, count, rng("input_tokens"), most)
    outputs, notes = cut_outputs(lengths.draw(kind.outputs, count, rng("output_tokens")), work)
    inputs, told = cut_inputs(kind.inputs, inputs, work)
    notes = [*told, *notes]
    prefix = kind.prefix
    short = 0 if prefix is None else int(np.count_nonzero(inputs <= prefix.tokens))
    if prefix is not None and short:
        notes.append(f"{short:,} of {count:,} prompts are no longer than the shared prefix and hold only its beginning")
    groups = prefix_groups(prefix, count, rng("groups"))
    least = np.minimum(inputs - 1, prefix.tokens if prefix is not None else 0)
    among = dealt(kind.families, inputs, least, rng("families")) if kind.families and not warmup else [None] * count
    turns = [
        Turn(0.0, _runs(kind, tokens, group, family), output_tokens)
        for tokens, output_tokens, group, family in zip(
            inputs.tolist(), outputs.tolist(), groups.tolist(), among, strict=True
        )
    ]
    return turns, tuple(f"{', '.join(kind.purpose)}: {note}" for note in notes)


def cut_inputs(spec: Lengths, values: Draws, work: Workload) -> tuple[Draws, list[str]]:
    """Drawn prompts within max_input_tokens, and what `fit` did to their distribution."""
    bound = work.max_input_tokens
    if bound is not None and work.fit == "drop" and (share := lengths.share_within(spec, bound)) < 1:
        return values, [f"{text(1 - share, 'ratio')} of the given input_tokens lie above {bound:,} and are left out"]
    return _cut(values, bound, "prompts")


def cut_outputs(values: Draws, work: Workload) -> tuple[Draws, list[str]]:
    """Drawn outputs within max_output_tokens."""
    return _cut(values, work.max_output_tokens, "outputs")


def prefix_groups(prefix: SharedPrefix | None, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The group of each of `count` requests or sessions: in turn, or by Zipf's law in random order.

    By Zipf's law the counts are the shares' to within one (largest remainder), so that they do not depend on the seed.
    """
    if prefix is None or prefix.zipf is None:
        return np.resize(np.arange(prefix.groups if prefix is not None else 1, dtype=np.int64), count)
    shares: NDArray[np.float64] = np.arange(1, prefix.groups + 1, dtype=np.float64) ** -prefix.zipf
    groups: NDArray[np.int64] = rng.permutation(np.repeat(np.arange(prefix.groups), apportioned(shares, count)))
    return groups


def apportioned(shares: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Whole numbers in proportion to `shares`, `count` in all: the largest remainders are rounded up."""
    exact = shares / shares.sum() * count
    whole: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    for place in np.argsort(whole - exact, kind="stable")[: count - int(whole.sum())]:
        whole[place] += 1
    return whole


def shared_run(kind: Kind, group: int, tokens: int) -> tuple[Run, ...]:
    """The shared prefix of a prompt of `tokens` tokens; one at least is the request's own."""
    shared = 0 if kind.prefix is None else min(kind.prefix.tokens, tokens - 1)
    return (Run(f"{PREFIX}{kind.owner}{group}", shared),) if shared else ()


def of_turns(stage: str, turns: Sequence[Turn], *, warmup: bool = False) -> list[Content]:
    """The requests that a stage makes of turns, in their order."""
    known: dict[Run, Run] = {}
    mark = "w" if warmup else ""

    def named(run: Run, index: int) -> Run:
        if run.key == UNIQUE:
            return Run(f"{UNIQUE}{stage}:{mark}{index}", run.tokens)
        if run.key.startswith(PREFIX):
            return known.setdefault(run, run)
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


def _runs(kind: Kind, tokens: int, group: int, family: Family | None) -> tuple[Run, ...]:
    runs = shared_run(kind, group, tokens)
    if family is not None:
        runs = (*runs, Run(f"{ADDED}{kind.owner}family{family.number}", family.tokens))
    # One token at least is the request's own, so that no two prompts are equal.
    return (*runs, Run(UNIQUE, tokens - sum(run.tokens for run in runs)))
