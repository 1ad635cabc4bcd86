"""Conducts an experiment: starts the servers, takes the blocks in their order, stops when told to."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from loadgen.drive.calibrate import CHECK_TOKENS, vocabulary as calibrated
from loadgen.drive.run import Stop
from loadgen.engines.table import ENGINES
from loadgen.errors import ServerError
from loadgen.experiment.block import Wanted, drive_block
from loadgen.experiment.fleet import Endpoint, Fleet, longest_tokens
from loadgen.experiment.setup import Setup
from loadgen.live.dashboard import Dashboard
from loadgen.records import Vocabulary
from loadgen.workload.prompts import check as check_prompts


async def conduct(setup: Setup, dashboard: Dashboard) -> bool:
    """Drives every block that is not done yet; True if all of them were, False if a person stopped it.

    Ctrl-C once ends it after the stage under way, twice at once; before any traffic it ends at once.
    Raises ExperimentError (ServerError) if a server does not start or dies, or the disk refuses: what was
    measured before lies in the run directory.
    """
    stop = Stop()
    driving = asyncio.create_task(_blocks(setup, dashboard, stop))
    drawing = asyncio.create_task(dashboard.run())
    try:
        with _interruptible(stop, dashboard, driving.cancel):
            return await driving
    except asyncio.CancelledError:
        if not stop.after_stage_asked:
            raise
        return False
    finally:
        drawing.cancel()
        dashboard.clear()


@contextmanager
def _interruptible(stop: Stop, dashboard: Dashboard, cancel: Callable[[], object]) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        if stop.after_stage_asked or not dashboard.driving:
            at_once()
        else:
            stop.after_stage()
            dashboard.say("stopping after this stage, then reporting what there is; Ctrl-C again stops now")

    def at_once() -> None:
        idle = stop.now_asked or not dashboard.driving
        stop.now()
        dashboard.say("stopping now")
        if idle:
            cancel()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, at_once)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)


async def _blocks(setup: Setup, dashboard: Dashboard, stop: Stop) -> bool:
    manifest, started_s = setup.manifest, time.monotonic()
    wanted: Wanted | None = None
    async with Fleet(setup, dashboard) as fleet:
        dashboard.say(f"[{time.monotonic() - started_s:.0f} s] {len(manifest.order)} blocks to drive")
        for position, number in enumerate(manifest.order):
            if position in setup.done:
                continue
            if stop.after_stage_asked:
                return False
            async with fleet.at(position) as endpoint:
                if wanted is None:
                    words = await _vocabulary(setup, endpoint, manifest.arms[number].engine)
                    wanted = Wanted(vocabulary=words, stop=stop, dashboard=dashboard)
                label = f"block {position + 1}/{len(manifest.order)} {manifest.arms[number].name}"
                dashboard.block(label, blocks=len(manifest.order) - len(setup.done))
                end = await drive_block(setup, position, endpoint, wanted)
                took_s = dashboard.block_done()
                dashboard.say(f"[{time.monotonic() - started_s:.0f} s] {label}: {end.how} in {took_s:.0f} s")
                if end.how == "server_died":
                    raise endpoint.ended() or ServerError(end.detail)
            if end.how == "interrupted":
                return False
    return True


async def _vocabulary(setup: Setup, endpoint: Endpoint, engine_name: str) -> Vocabulary:
    """Prompts' material, learned from the first server and used on all: equal bytes for every arm."""
    reach, plan = setup.reach, setup.plan
    words = await calibrated(
        base_url=endpoint.url,
        model=endpoint.facts.model or "",
        endpoint=plan.endpoint,
        headers=reach.headers,
        token_ids=ENGINES[engine_name].takes_token_ids,
        check_tokens=min(CHECK_TOKENS, (endpoint.facts.max_model_len or longest_tokens(plan)) // 2),
        transport=reach.wire(),
    )
    check_prompts(plan, words)
    return words
