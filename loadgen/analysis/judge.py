"""From an experiment as it was read to the report: pure, the same answer every time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loadgen.analysis import folded, grid, scrapes as readings, stats
from loadgen.analysis.case import Case, PredictedRatio
from loadgen.analysis.causes.memory import capacity_doubts
from loadgen.analysis.checklist import checklist
from loadgen.analysis.compare import Comparison, Late, compare, unlike_events
from loadgen.analysis.curves import curves
from loadgen.analysis.decompose import Decode, decompose, prefill
from loadgen.analysis.diagnose import diagnose
from loadgen.analysis.headlines import families, headlines, held
from loadgen.analysis.innocence import innocence, withdrawn
from loadgen.analysis.study import Study, study
from loadgen.analysis.summary import arm_reports, commonest, failures, summaries
from loadgen.analysis.traffic import Traffic, traffic
from loadgen.analysis.unintended import doubts, unintended
from loadgen.analysis.windows import several_per_event, stage_samples
from loadgen.analysis.wording import counted
from loadgen.analysis.work import Work, uncounted, work
from loadgen.records import Check, Decomposition, Experiment, Finding, Report


def unpredicted(base_dtype: str, test_dtype: str) -> float | None:
    """No prediction of the capacity ratio."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What only a comparison has; empty in a run of one arm."""

    comparisons: tuple[Comparison, ...] = ()
    decomposition: Decomposition | None = None
    findings: tuple[Finding, ...] = ()
    checklist: tuple[Check, ...] = ()
    unintended: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def judge(experiment: Experiment, *, predicted_ratio: PredictedRatio = unpredicted) -> Report:
    """The whole report. `predicted_ratio(base dtype, test dtype)`: how many times the tokens the format should hold."""
    cut = study(experiment)
    virtual_time = experiment.manifest.noise_seed is not None
    checks, late = ((), ()) if virtual_time else innocence(cut)
    judged = _judged(cut, late, predicted_ratio) if cut.test is not None else Judgement(warnings=_uncounted(cut))
    manifest = experiment.manifest
    sent = traffic(cut)
    found = families(cut.stages, judged.comparisons)
    maps = grid.maps(cut.stages, judged.comparisons, held(cut.stages, found)) if cut.test is not None else ()
    cells = {spec.name for spec in grid.cells_of(cut.stages)}
    return Report(
        loadgen=manifest.loadgen,
        title=_title(cut),
        path=experiment.path,
        command=manifest.command,
        scenario=manifest.scenario,
        scenario_text=manifest.scenario_text,
        started_at=manifest.started_at,
        base=cut.base,
        test=cut.test,
        order=tuple(cut.labels[number] for number in manifest.order if number < len(cut.labels)),
        restart=manifest.restart,
        simulated=virtual_time or any(_simulated(block.facts.engine) for block in experiment.blocks),
        virtual_time=virtual_time,
        headlines=headlines(cut, found, maps),
        arms=arm_reports(cut),
        stages=cut.stages,
        summaries=summaries(cut),
        differences=tuple(one.difference for one in judged.comparisons),
        decomposition=judged.decomposition,
        findings=judged.findings,
        checklist=judged.checklist,
        unintended=folded.lines(judged.unintended, cells),
        innocence=folded.checks(checks, cells),
        traffic=folded.checks(sent.checks, cells),
        maps=maps,
        curves=curves(cut),
        warnings=folded.lines(_warnings(cut, late, sent, judged), cells),
        client_host=manifest.client_host,
        packages=manifest.packages,
        plan_notes=manifest.plan_notes,
        slo=manifest.slo,
    )


def _warnings(cut: Study, late: Sequence[Late], sent: Traffic, judged: Judgement) -> tuple[str, ...]:
    return (
        *cut.warnings,
        *withdrawn(late),
        *sent.warnings,
        *_failures(cut),
        *_lost(cut),
        *_chunked(cut),
        *_unread(cut),
        *judged.warnings,
        *doubts(cut),
        *_one_sided(cut),
        *_further(cut),
    )


def _title(cut: Study) -> str:
    arms = cut.base if cut.test is None else f"{cut.test} against {cut.base}"
    return f"{arms}: {cut.experiment.manifest.scenario}"


def _simulated(engine: str) -> bool:
    return "emulat" in engine.lower()


def _judged(cut: Study, late: Sequence[Late], predicted_ratio: PredictedRatio) -> Judgement:
    works = {spec.name: work(cut, spec) for spec in cut.stages}
    comparisons = compare(cut, works, late)
    decode = decompose(cut)
    usable = _one_stream_usable(cut, works, late)
    case = Case(
        study=cut,
        differences={(one.difference.stage, one.difference.quantity): one.difference for one in comparisons},
        decode=decode if usable else None,
        prefill=prefill(cut) if usable else None,
        predicted_ratio=predicted_ratio,
        refused=frozenset(name for name, one in works.items() if one.differs),
    )
    findings = diagnose(case)
    return Judgement(
        comparisons=comparisons,
        decomposition=_usable(decode) if usable else None,
        findings=findings,
        checklist=checklist(case, findings),
        unintended=(*unintended(cut), *_unequal(works)),
        warnings=(*_noted(works), *capacity_doubts(case)),
    )


def _usable(decode: Decode | None) -> Decomposition | None:
    return None if decode is None else decode.decomposition


def _one_stream_usable(cut: Study, works: Mapping[str, Work], late: Sequence[Late]) -> bool:
    """One stream speaks only if both arms did the same work in like events, and the client was on time."""
    spec = cut.stage("one_stream")
    if spec is None or works[spec.name].differs or unlike_events(cut, spec.name):
        return False
    return not any(late_one.concerns(spec.name, "itl_p50_s") for late_one in late)


def _unequal(works: Mapping[str, Work]) -> tuple[str, ...]:
    return tuple(f"{name}: not the same work: {one}" for name, found in works.items() for one in found.differs)


def _noted(works: Mapping[str, Work]) -> tuple[str, ...]:
    return tuple(f"{name}: {note}" for name, found in works.items() for note in found.notes)


def _uncounted(cut: Study) -> tuple[str, ...]:
    return tuple(f"{spec.name}: {note}" for spec in cut.stages for note in uncounted(cut, spec.name))


def _chunked(cut: Study) -> Iterator[str]:
    for spec in cut.stages:
        for arm in cut.labels:
            if any(several_per_event(one.ok) for one in cut.of(spec.name, arm)):
                yield (
                    f"{spec.name}: {arm}: several tokens came in one event: ITL is between events, not tokens, and "
                    "TTFT is that of several tokens; TPOT is per token"
                )


def _failures(cut: Study) -> tuple[str, ...]:
    counts = {arm: failures(cut, arm) for arm in cut.labels}
    return tuple(
        f"{arm}: failed requests: {counted(found)}{commonest(cut, arm)}" for arm, found in counts.items() if found
    )


def _lost(cut: Study) -> tuple[str, ...]:
    """Where a stage's mark and its samples on disk disagree, files were damaged after the run."""
    return tuple(
        f"{arm}: block {block.manifest.order}, {mark.stage}: {mark.sent} requests were sent and {count} are on record: "
        "files of this run were damaged"
        for arm in cut.labels
        for block in cut.blocks[arm]
        for mark in block.marks
        if not mark.warmup and (count := len(stage_samples(block, mark.stage))) != mark.sent
    )


def _unread(cut: Study) -> tuple[str, ...]:
    scraped = {arm: [scrape for block in cut.blocks[arm] for scrape in block.scrapes] for arm in cut.labels}
    return tuple(line for arm, scrapes in scraped.items() for line in readings.doubts(arm, scrapes))


QUEUES, FLOWS = 1.0, 0.5  # requests waiting on average: from here on a queue, up to here none


def _one_sided(cut: Study) -> tuple[str, ...]:
    """Where one arm queues and the other does not, TTFT and goodput measure the queue, and so this load."""
    found = []
    for spec in cut.stages if cut.test is not None else ():
        waiting = {arm: stats.mean(cut.values("waiting_mean", spec.name, arm)).center for arm in cut.labels[:2]}
        for queues, flows in (cut.labels[:2], cut.labels[1::-1]):
            behind, free = waiting[queues], waiting[flows]
            if behind is not None and free is not None and behind >= QUEUES and free <= FLOWS:
                found.append(
                    f"{spec.name}: {queues} queued ({behind:.1f} waiting on average), {flows} did not ({free:.1f}): "
                    f"TTFT and goodput are those of this load; with more in flight {flows} would queue as well"
                )
    return tuple(found)


def _further(cut: Study) -> tuple[str, ...]:
    if len(cut.labels) < 3:
        return ()
    rest = ", ".join(cut.labels[2:])
    return (f"compared are {cut.base} and {cut.test}; of {rest} there are summaries only",)
