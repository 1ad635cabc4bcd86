"""Did both arms do the same work? If not, a stage is not compared."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loadgen.analysis.study import Study
from loadgen.analysis.summary import failures
from loadgen.analysis.windows import StageData
from loadgen.analysis.wording import counted
from loadgen.records import StageSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What differs (then the stage is refused), and what must be said though it is compared."""

    stage: str
    differs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def work(study: Study, spec: StageSpec) -> Work:
    """Holds the test arm's work in a stage against the base's: which requests ended well, their tokens, how they ended.

    A stage bound by time gives equal time, not equal work: there only requests that both arms finished must agree.
    """
    base, test = study.of(spec.name, study.base), study.of(spec.name, study.test or "")
    if not base or not test:
        missing = study.base if not base else study.test
        return Work(stage=spec.name, differs=(f"{missing} has no request of this stage",))
    by_time = spec.duration_s is not None
    differs = [*_failed(study, spec.name), *([] if by_time else _sets(study, base, test))]
    differs += [*_tokens(study, base, test, "prompt"), *_tokens(study, base, test, "output")]
    differs += _finish(study, base, test)
    notes = ["equal time, not equal work: the stage is bound by duration"] if by_time else []
    return Work(stage=spec.name, differs=tuple(differs), notes=(*notes, *uncounted(study, spec.name)))


def _failed(study: Study, stage: str) -> Iterator[str]:
    for arm in (study.base, study.test or ""):
        counts = failures(study, arm, stage)
        if counts:
            sent = sum(len(one.samples) for one in study.of(stage, arm))
            yield f"{arm}: {sum(counts.values()):,} of {sent:,} requests failed ({counted(counts)})"


def _sets(study: Study, base: Sequence[StageData], test: Sequence[StageData]) -> Iterator[str]:
    done = {arm: [_done(one) for one in held] for arm, held in ((study.base, base), (study.test, test))}
    everything: frozenset[int] = frozenset().union(*(one for blocks in done.values() for one in blocks))
    for arm, blocks in done.items():
        short = [one for one in blocks if one != everything]
        if short:
            fewest = min(len(one) for one in short)
            yield (
                f"{arm}: {len(short)} of {len(blocks)} blocks completed fewer requests than others "
                f"({fewest:,} of {len(everything):,} at the fewest)"
            )


def _done(one: StageData) -> frozenset[int]:
    return frozenset(sample.index for sample in one.ok)


def _tokens(study: Study, base: Sequence[StageData], test: Sequence[StageData], kind: str) -> Iterator[str]:
    """Requests whose reported token counts are not the same in all blocks of both arms."""
    counts: dict[int, set[int]] = {}
    totals: dict[str | None, int] = {study.base: 0, study.test: 0}
    for arm, held in ((study.base, base), (study.test, test)):
        for one in held:
            for sample in one.ok:
                tokens = sample.prompt_tokens if kind == "prompt" else sample.output_tokens
                if tokens is not None:
                    counts.setdefault(sample.index, set()).add(tokens)
                    totals[arm] += tokens
    unequal = sum(len(seen) > 1 for seen in counts.values())
    if unequal:
        sums = ", ".join(f"{arm} {total:,}" for arm, total in totals.items())
        yield f"{kind} tokens differ in {unequal:,} of {len(counts):,} requests (in all: {sums})"


def _finish(study: Study, base: Sequence[StageData], test: Sequence[StageData]) -> Iterator[str]:
    """Requests that did not end for the same reason in all blocks of both arms."""
    reasons: dict[int, set[str | None]] = {}
    kinds: dict[str | None, Counter[str]] = {study.base: Counter(), study.test: Counter()}
    for arm, held in ((study.base, base), (study.test, test)):
        for one in held:
            for sample in one.ok:
                reasons.setdefault(sample.index, set()).add(sample.finish_reason)
                kinds[arm][sample.finish_reason or "none"] += 1
    unequal = sum(len(seen) > 1 for seen in reasons.values())
    if unequal:
        found = "; ".join(f"{arm} {counted(counts)}" for arm, counts in kinds.items())
        yield f"finish reasons differ in {unequal:,} of {len(reasons):,} requests ({found})"


def uncounted(study: Study, stage: str) -> Iterator[str]:
    """Arms whose server did not count what it sent."""
    for arm in study.labels:
        unknown = sum(sample.output_tokens is None for one in study.of(stage, arm) for sample in one.ok)
        if unknown:
            yield f"{arm}: no token counts from the server for {unknown:,} requests: one event is taken as one token"
