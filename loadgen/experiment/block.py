"""One block: every stage of the plan on one server, scraped and watched while it goes, stored as it comes."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import loadgen
from loadgen.clock import Clock
from loadgen.drive.client import Client
from loadgen.drive.failures import Expects
from loadgen.drive.health import watch
from loadgen.drive.run import Progress, Stop, drive_stage
from loadgen.drive.transport import Timeouts
from loadgen.engines.body import request_body
from loadgen.engines.engine import Engine
from loadgen.engines.table import ENGINES
from loadgen.errors import ExperimentError, ServerError
from loadgen.experiment.fleet import Endpoint
from loadgen.experiment.order import repeat_of
from loadgen.experiment.setup import Setup, nonce
from loadgen.live.dashboard import Dashboard
from loadgen.records import BlockEnd, Manifest, Request, Scrape, Vocabulary
from loadgen.server.scrape import Scraper
from loadgen.store import BlockWriter, block_folder, write_once
from loadgen.workload.prompts import render

FLUSH_INTERVAL_S = 1.0
ALIVE_INTERVAL_S = 0.5
DEATH_SHOWS_S = 0.5
ALIVE_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a block is driven with, beyond the plan."""

    vocabulary: Vocabulary
    stop: Stop
    dashboard: Dashboard


def manifest_of(setup: Setup, position: int, url: str) -> Manifest:
    """The block's manifest. Arms share a salt within a repeat (byte-identical work) unless they share a server."""
    manifest = setup.manifest
    arm = manifest.arms[manifest.order[position]]
    repeat = repeat_of(manifest.order, position)
    shared_server = sum(1 for other in manifest.arms if other.url is not None and other.url == arm.url) > 1
    turn = f"{repeat}.{position}" if shared_server else str(repeat)
    return Manifest(
        loadgen=loadgen.__version__,
        scenario=manifest.scenario,
        plan_digest=setup.plan.digest,
        seed=setup.plan.seed,
        salt=f"{nonce(manifest)}:{turn}",
        arm=arm.name,
        repeat=repeat,
        order=position,
        restart=manifest.restart,
        url=url,
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        stages=tuple(stage.spec for stage in setup.plan.stages),
    )


async def drive_block(setup: Setup, position: int, endpoint: Endpoint, wanted: Wanted) -> BlockEnd:
    """Drives the block at `position` and stores it; returns how it ended.

    Raises ExperimentError if the disk refuses; what was stored before is kept.
    """
    manifest = manifest_of(setup, position, endpoint.url)
    folder = block_folder(setup.root, position, manifest.arm)
    write_once(folder, manifest)
    write_once(folder, endpoint.facts)
    clock = Clock()
    writer, progress = BlockWriter(folder), Progress()
    try:
        detail = await _drive_watched(setup, endpoint, wanted, manifest, (clock, writer, progress))
    finally:
        writer.close()
    died = await _died(endpoint, suspect=progress.failed > 0)
    end = BlockEnd(
        ended_s=clock.now(),
        how="server_died" if died else "interrupted" if detail else "complete",
        detail=str(died).splitlines()[0] if died else detail,
    )
    write_once(folder, end)
    return end


async def _drive_watched(
    setup: Setup, endpoint: Endpoint, wanted: Wanted, manifest: Manifest, run: tuple[Clock, BlockWriter, Progress]
) -> str:
    clock, writer, progress = run
    arm = setup.manifest.arms[setup.manifest.order[manifest.order]]
    engine, reach = ENGINES[arm.engine], setup.reach
    wanted.dashboard.watch(progress)

    def scraped(scrape: Scrape) -> None:
        writer.append(scrape)
        wanted.dashboard.scraped(scrape)

    async with client_for(setup, endpoint.url, clock, engine) as client:
        scraper = Scraper(
            endpoint.url,
            engine=engine,
            clock=clock,
            sink=scraped,
            interval_s=reach.scrape_interval_s,
            headers=reach.headers,
            transport=reach.wire(),
        )
        body_of = _body_of(setup, manifest, endpoint.facts.model or "", wanted.vocabulary, engine)
        outcome = await _with_company(
            _stages(setup, wanted, client=client, body_of=body_of, progress=progress, run=(clock, writer)),
            scraper.run(),
            watch(clock, writer.append, lambda: progress.in_flight),
            _flush(writer),
            _while_alive(endpoint, wanted.stop),
        )
    for warning in scraper.warnings:
        wanted.dashboard.say(f"warning: {warning}")
    return outcome


def client_for(setup: Setup, url: str, clock: Clock, engine: Engine) -> Client:
    """The client that drives `url` as the experiment was told to reach it."""
    reach = setup.reach
    return Client(
        base_url=url,
        endpoint=setup.plan.endpoint,
        clock=clock,
        headers=reach.headers,
        timeouts=Timeouts(connect_s=reach.connect_timeout_s, read_s=reach.read_timeout_s),
        transport=reach.transport,
        tls=reach.tls(),
        expects=Expects(done_required=engine.done_sent, exact_output=bool(engine.forces_length)),
    )


async def _stages(
    setup: Setup,
    wanted: Wanted,
    *,
    client: Client,
    body_of: Callable[[Request], bytes],
    progress: Progress,
    run: tuple[Clock, BlockWriter],
) -> str:
    clock, writer = run
    for number, stage in enumerate(setup.plan.stages):
        if wanted.stop.after_stage_asked:
            return f"stopped before stage {stage.spec.name}"
        await drive_stage(
            stage,
            client=client,
            clock=clock,
            body_of=body_of,
            sink=writer.append,
            marks=writer.append,
            stop=wanted.stop,
            progress=progress,
        )
        writer.flush()
        if wanted.stop.after_stage_asked and (wanted.stop.now_asked or number + 1 < len(setup.plan.stages)):
            return f"stopped {'within' if wanted.stop.now_asked else 'after'} stage {stage.spec.name}"
    return ""


def _body_of(
    setup: Setup, manifest: Manifest, model: str, vocabulary: Vocabulary, engine: Engine
) -> Callable[[Request], bytes]:
    plan = setup.plan

    def body_of(request: Request) -> bytes:
        prompt = render(request, seed=plan.seed, salt=manifest.salt, vocabulary=vocabulary)
        return request_body(
            endpoint=plan.endpoint,
            model=model,
            prompt=prompt,
            output_tokens=request.output_tokens,
            engine=engine,
        )

    return body_of


async def _with_company(main: Coroutine[Any, Any, str], *company: Awaitable[None]) -> str:
    """Runs `main` to its end while the company goes on beside it; a failure in the company ends `main` with it."""
    driving = asyncio.ensure_future(main)
    beside = {asyncio.ensure_future(one) for one in company}
    try:
        pending = set(beside)
        while not driving.done():
            done, _ = await asyncio.wait({driving, *pending}, return_when=asyncio.FIRST_COMPLETED)
            pending -= done
            for task in done - {driving}:
                task.result()
        return driving.result()
    except OSError as error:
        raise ExperimentError(f"the client failed: {error}") from error
    finally:
        for task in (driving, *beside):
            task.cancel()
        await asyncio.gather(driving, *beside, return_exceptions=True)


async def _flush(writer: BlockWriter) -> None:
    while True:
        await asyncio.sleep(FLUSH_INTERVAL_S)
        writer.flush()


async def _died(endpoint: Endpoint, *, suspect: bool) -> ServerError | None:
    """Whether the server has ended. Where requests failed at the end it may be ending: that takes a moment to show."""
    turns = DEATH_SHOWS_S / ALIVE_POLL_S if suspect else 0
    while (died := endpoint.ended()) is None and turns > 0:
        turns -= 1
        await asyncio.sleep(ALIVE_POLL_S)
    return died


async def _while_alive(endpoint: Endpoint, stop: Stop) -> None:
    while endpoint.ended() is None:
        await asyncio.sleep(ALIVE_INTERVAL_S)
    stop.now()
