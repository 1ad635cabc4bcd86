"""An experiment in virtual time: the same plan, order and records, with emulated engines in place of servers."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from loadgen.emulator.arm import Emulated
from loadgen.emulator.facts import facts
from loadgen.emulator.virtual import Process, drive_stage
from loadgen.experiment.order import repeat_of
from loadgen.experiment.setup import nonce
from loadgen.records import Block, BlockEnd, Experiment, ExperimentManifest, Manifest, Plan, Sample, StageMark

BETWEEN_S = 1.0  # from one block to the next
RESTART_S = 60.0  # where a process is started between them


def simulated(
    manifest: ExperimentManifest,
    plan: Plan,
    engines: Sequence[Emulated],
    *,
    seed: int,
    scrape_interval_s: float = 0.25,
) -> Experiment:
    """The whole experiment; `engines` are in the order of `manifest.arms`. The same seed gives the same noise.

    Raises UserError for a request that an engine could never hold.
    """
    found = blocks(manifest, plan, engines, seed=seed, scrape_interval_s=scrape_interval_s)
    return Experiment(manifest=manifest, blocks=tuple(found), path="")


def blocks(
    manifest: ExperimentManifest,
    plan: Plan,
    engines: Sequence[Emulated],
    *,
    seed: int,
    scrape_interval_s: float = 0.25,
) -> Iterator[Block]:
    """The blocks in their order, one at a time."""
    up: dict[int, Process] = {}
    machine_s = 0.0
    for position, number in enumerate(manifest.order):
        if manifest.restart == "each-block" or number not in up:
            up[number] = Process(engines[number], seed=(seed, number, position), machine_seed=(seed,))
        process = up[number]
        process.begin(machine_s, scrape_interval_s)
        samples: list[Sample] = []
        marks: list[StageMark] = []
        head = _manifest(manifest, plan, position, machine_s)
        for stage in plan.stages:
            seen, ended = drive_stage(stage, process, salt=head.salt, origin_s=machine_s)
            samples += seen
            marks += ended
        process.wait(process.now_s + 2 * scrape_interval_s)
        yield Block(
            manifest=head,
            facts=facts(engines[number]),
            marks=tuple(marks),
            samples=tuple(samples),
            scrapes=tuple(process.scrapes),
            health=(),
            end=BlockEnd(ended_s=process.now_s - machine_s, how="complete"),
        )
        machine_s = process.now_s + (RESTART_S if manifest.restart == "each-block" else BETWEEN_S)


def _manifest(manifest: ExperimentManifest, plan: Plan, position: int, machine_s: float) -> Manifest:
    arm, repeat = manifest.arms[manifest.order[position]], repeat_of(manifest.order, position)
    began = datetime.fromisoformat(manifest.started_at) + timedelta(seconds=machine_s)
    return Manifest(
        loadgen=manifest.loadgen,
        scenario=manifest.scenario,
        plan_digest=plan.digest,
        seed=plan.seed,
        salt=f"{nonce(manifest)}:{repeat}",
        arm=arm.name,
        repeat=repeat,
        order=position,
        restart=manifest.restart,
        url="",
        started_at=began.isoformat(timespec="milliseconds"),
        stages=tuple(stage.spec for stage in plan.stages),
    )
