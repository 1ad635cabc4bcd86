"""An experiment in virtual time: the same plan, order and records, with emulated engines in place of servers.

`blocks` is pure: it computes what `conduct` would measure. `simulate` stores it as `conduct` would.
"""

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from loadgen.emulator.arm import Emulated, emulated
from loadgen.emulator.facts import facts
from loadgen.emulator.profile import parse
from loadgen.emulator.virtual import check, drive_stage
from loadgen.emulator.virtual_process import Process, Progress, Watch
from loadgen.errors import ExperimentError, UserError
from loadgen.experiment.order import repeat_of
from loadgen.experiment.read_back import log_text, read_back
from loadgen.experiment.setup import Setup, nonce
from loadgen.live.dashboard import Dashboard
from loadgen.quantities import text
from loadgen.records import (
    ArmSpec,
    Block,
    BlockEnd,
    Experiment,
    ExperimentManifest,
    Manifest,
    Plan,
    Sample,
    Scrape,
    ServerFacts,
    StageMark,
)
from loadgen.store import BlockWriter, block_folder, write_once

BETWEEN_S = 1.0  # from one block to the next
RESTART_S = 60.0  # where a process is started between them
REDRAWN_S = 0.5
OWN_FLAGS = frozenset({"profile"})


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
    told: Sequence[ServerFacts] = (),
    watch: Watch | None = None,
) -> Iterator[Block]:
    """The blocks in their order, one at a time. Where `watch` asks to stop, the block under way is the last.

    `told`: what each arm is found to be; empty = as the profile has it.
    """
    told = told or [facts(engine) for engine in engines]
    up: dict[int, Process] = {}
    machine_s = 0.0
    watch = watch or Watch()
    for position, number in enumerate(manifest.order):
        if watch.stop_asked:
            return
        if manifest.restart == "each-block" or number not in up:
            up[number] = Process(engines[number], seed=(seed, number, position), machine_seed=(seed,), watch=watch)
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
            facts=told[number],
            marks=tuple(marks),
            samples=tuple(samples),
            scrapes=tuple(process.scrapes),
            health=(),
            end=BlockEnd(
                ended_s=process.now_s - machine_s,
                how="interrupted" if watch.stop_asked else "complete",
                detail=f"stopped within stage {marks[-1].stage}" if watch.stop_asked and marks else "",
            ),
        )
        machine_s = process.now_s + (RESTART_S if manifest.restart == "each-block" else BETWEEN_S)


def engines_of(arms: Sequence[ArmSpec], profiles: Mapping[str, str], plan: Plan) -> tuple[Emulated, ...]:
    """What the arms are, made of `profiles` (as the arms name them -> their YAML).

    Raises UserError with every complaint, each with its arm, about arms that cannot be or cannot serve `plan`.
    """
    found: list[Emulated] = []
    complaints: list[str] = []
    for arm in arms:
        name = profile_of(arm)
        try:
            engine = emulated(parse(profiles[name], Path(name)), arm.shared_flags | arm.flags, own=OWN_FLAGS)
            for stage in plan.stages:
                check(stage, engine)
            found.append(engine)
        except UserError as error:
            complaints += (f"arm {arm.name}: {complaint}" for complaint in error.complaints)
    if complaints:
        raise UserError(*dict.fromkeys(complaints))
    return tuple(found)


def profile_of(arm: ArmSpec) -> str:
    """The profile that an arm asks for, by name or file. Raises UserError where it asks for none."""
    name = (arm.shared_flags | arm.flags).get("profile")
    if name is None:
        raise UserError(f"arm {arm.name}: no profile; give --profile (a name or a file)")
    return name


def simulate(setup: Setup, dashboard: Dashboard) -> bool:
    """Computes every block and stores those that are not done; True if all were, False if a person stopped it.

    An engine's state follows from all that came before, so blocks that are done are computed again and not stored.
    Ctrl-C ends the block under way where it is and keeps what there is of it. Raises UserError for arms or requests
    that cannot be, ExperimentError if the disk refuses.
    """
    manifest, began_s = setup.manifest, time.monotonic()
    if manifest.noise_seed is None:
        raise ValueError("not a simulation: the manifest has no noise_seed")
    engines = engines_of(manifest.arms, manifest.profiles, setup.plan)
    watch = _Onlooker(dashboard)
    found = blocks(
        manifest,
        setup.plan,
        engines,
        seed=manifest.noise_seed,
        scrape_interval_s=setup.reach.scrape_interval_s,
        told=[_logged(setup, arm, engine) for arm, engine in zip(manifest.arms, engines, strict=True)],
        watch=watch,
    )
    with _interruptible(watch):
        dashboard.say(f"blocks to simulate: {len(manifest.order)}")
        for position, number in enumerate(manifest.order):
            watch.label = f"block {position + 1}/{len(manifest.order)} {manifest.arms[number].name}"
            block = next(found, None)
            if block is not None and position not in setup.done:
                _store(setup.root, block)
                dashboard.say(f"[{time.monotonic() - began_s:.0f} s] {watch.label}: {_told(block.end)}")
    dashboard.clear()
    return not watch.stop_asked


def _logged(setup: Setup, arm: ArmSpec, engine: Emulated) -> ServerFacts:
    """What the arm is found to be; its log is kept where a server's would be."""
    log = log_text(engine, datetime.fromisoformat(setup.manifest.started_at))
    path = setup.root / "servers" / f"{arm.name}.log"
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(log, encoding="utf-8")
    except OSError as error:
        raise ExperimentError(f"{path}: cannot write: {error.strerror}; choose another --out") from error
    return read_back(engine, log)


class _Onlooker(Watch):
    """Draws a line twice a second while a block is computed."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.label = ""
        self._dashboard = dashboard
        self._progress: Progress | None = None
        self._drawn_s = time.monotonic()

    def begins(self, part: Progress) -> None:
        """Remembers whose progress to show."""
        self._progress = part

    def scraped(self, scrape: Scrape) -> None:
        """Draws, unless it has just done so."""
        now_s, part = time.monotonic(), self._progress
        if now_s - self._drawn_s < REDRAWN_S or part is None:
            return
        self._drawn_s = now_s
        values = scrape.engines[0].values
        stage = f"{part.stage}{' warm-up' if part.warmup else ''} {part.done}/{part.planned}"
        state = f"running {values['running']:.0f}, waiting {values['waiting']:.0f}"
        self._dashboard.wait(f"simulating {self.label} · {stage} · {text(scrape.at_s, 's')} on its clock · {state}")


@contextmanager
def _interruptible(watch: Watch) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask to stop; a second Ctrl-C ends the program."""

    def interrupted(number: int, _: object) -> None:
        if watch.stop_asked:
            raise KeyboardInterrupt
        watch.stop_asked = True

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _told(end: BlockEnd | None) -> str:
    return f"{end.how}, {text(end.ended_s, 's')} simulated" if end else "cut off"


def _store(root: Path, block: Block) -> None:
    folder = block_folder(root, block.manifest.order, block.manifest.arm)
    write_once(folder, block.manifest)
    write_once(folder, block.facts)
    writer = BlockWriter(folder)
    try:
        for lines in (block.samples, block.scrapes, block.marks):
            for record in lines:
                writer.append(record)
    finally:
        writer.close()
    if block.end is not None:
        write_once(folder, block.end)


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
