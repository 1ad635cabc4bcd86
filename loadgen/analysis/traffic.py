"""Was the traffic on the server what was planned? Prompt lengths as it counted them; prefix hits beside the theory.

The theory is the plan's (`records.Reuse`): the share of prompt tokens that an earlier prompt of the stage begins with,
for an unlimited cache, and for one as large as the server's that forgets what was used longest ago. Between two
capacities of the plan's curve the share is taken as linear in the logarithm of the capacity. Both are for a cache that
works in whole blocks of the server's size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.analysis.study import Study
from loadgen.analysis.windows import StageData
from loadgen.analysis.wording import listed
from loadgen.quantities import text
from loadgen.records import Check, Reuse, Sample, ServerFacts, StageSpec

TOLERATED = 0.02  # hits above the theory that readings of /metrics around a stage can bring in


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """One line for each stage and kind, and what must be said of those that fail."""

    checks: tuple[Check, ...]
    warnings: tuple[str, ...]


def traffic(study: Study) -> Traffic:
    """Prompt tokens of every stage; prefix hits of those whose plan has prompts that begin alike."""
    checks: list[Check] = []
    warnings: list[str] = []
    for spec in study.stages:
        held = {arm: found for arm in study.labels if (found := study.of(spec.name, arm))}
        if held:
            checks.append(_prompts(spec, held))
            warnings += _mismatches(spec, held)
        if held and spec.reuse is not None:
            seen = {arm: _hits(study.facts(arm), one, spec.reuse) for arm, one in held.items()}
            checks.append(_check(f"{spec.name}: prefix hits within the traffic's reuse", seen))
            warnings += _too_many(spec, seen)
    return Traffic(checks=tuple(checks), warnings=tuple(warnings))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    passed: bool | None
    figure: str


def _check(name: str, seen: dict[str, _Seen]) -> Check:
    verdicts = [one.passed for one in seen.values()]
    passed = False if False in verdicts else None if None in verdicts else True
    return Check(name=name, passed=passed, figure="; ".join(f"{arm} {one.figure}" for arm, one in seen.items()))


def _prompts(spec: StageSpec, held: dict[str, tuple[StageData, ...]]) -> Check:
    seen = {}
    for arm, blocks in held.items():
        counted = _counted(blocks)
        right = sum(sample.prompt_tokens == sample.planned_prompt_tokens for sample in counted)
        passed = right == len(counted) if counted else None
        figure = f"{right:,} of {len(counted):,}" if counted else "the server does not tell"
        seen[arm] = _Seen(passed=passed, figure=figure)
    return _check(f"{spec.name}: prompt tokens as planned", seen)


def _counted(blocks: Sequence[StageData]) -> list[Sample]:
    return [sample for one in blocks for sample in one.ok if sample.prompt_tokens is not None]


def _mismatches(spec: StageSpec, held: dict[str, tuple[StageData, ...]]) -> Iterator[str]:
    for arm, blocks in held.items():
        counted = _counted(blocks)
        wrong = [sample for sample in counted if sample.prompt_tokens != sample.planned_prompt_tokens]
        if wrong:
            one = wrong[0]
            yield (
                f"{spec.name}: {arm}: the server counted other prompt tokens than planned in {len(wrong):,} of "
                f"{len(counted):,} requests, such as request {one.index}: {one.prompt_tokens:,} for "
                f"{one.planned_prompt_tokens:,}; prompts are not exact there: look at the endpoint and chat template"
            )


def _hits(facts: ServerFacts, blocks: Sequence[StageData], reuse: Reuse) -> _Seen:
    theory = unlimited(reuse, facts.block_tokens)
    known = [f"{text(theory, 'ratio')} unlimited"]
    if facts.capacity_tokens is not None and (there := at_capacity(reuse, facts.capacity_tokens, facts.block_tokens)):
        known.append(f"{there} at {text(facts.capacity_tokens, 'tokens')}")
    told = f"theory {', '.join(known)}"
    if facts.prefix_caching is False:
        return _Seen(passed=None, figure=f"prefix caching off ({told})")
    measured = measured_ratios(blocks)
    if not measured:
        return _Seen(passed=None, figure=f"the server does not tell ({told})")
    figures = listed([f"{text(ratio, 'ratio')} by its {source}" for source, ratio in measured.items()])
    return _Seen(passed=max(measured.values()) <= theory + TOLERATED, figure=f"{figures} ({told})")


def measured_ratios(blocks: Sequence[StageData]) -> dict[str, float]:
    """Hits over prompt tokens in all blocks of a stage: by the server's counters, and by the usage of each request."""
    found = {}
    queries = sum(one.view.counters.get("prefix_queries", 0.0) for one in blocks)
    if queries:
        found["counters"] = sum(one.view.counters.get("prefix_hits", 0.0) for one in blocks) / queries
    told = [sample for one in blocks for sample in one.ok if sample.cached_tokens is not None]
    if told:
        prompts = sum(sample.planned_prompt_tokens for sample in told)
        found["usage"] = sum(sample.cached_tokens or 0 for sample in told) / prompts
    return found


def unlimited(reuse: Reuse, block_tokens: int | None) -> float:
    """The share that an unlimited cache gives; for a block size that the plan does not know, the next smaller one's."""
    return reuse.ratios[_size(reuse, block_tokens)]


def _size(reuse: Reuse, block_tokens: int | None) -> int:
    return max((place for place, size in enumerate(reuse.block_tokens) if size <= (block_tokens or 1)), default=0)


def at_capacity(reuse: Reuse, capacity_tokens: int, block_tokens: int | None) -> str | None:
    """The share at a capacity, as written; a bound below the curve's first capacity; None without a curve."""
    if not reuse.lru_ratios:
        return None
    logs = np.log(np.array(reuse.capacities_tokens, dtype=float))
    share = float(np.interp(np.log(capacity_tokens), logs, reuse.lru_ratios[_size(reuse, block_tokens)]))
    bound = "at most " if capacity_tokens < reuse.capacities_tokens[0] else ""
    return f"{bound}{text(share, 'ratio')}"


def _too_many(spec: StageSpec, found: dict[str, _Seen]) -> Iterator[str]:
    for arm, one in found.items():
        if one.passed is False:
            yield (
                f"{spec.name}: {arm}: more prefix hits than the plan can give ({one.figure}): the server's cache held "
                "prompts of another client or another run"
            )
