"""The emulated engine with planted faults inside the test's own process."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from fakes.streaming_app import serving

from loadgen.emulator.faults import parse
from loadgen.emulator.front import Front
from loadgen.emulator.options import read
from loadgen.emulator.serve import Log, engine_of, planted

PROFILE = str(Path(__file__).with_name("quick.yaml"))


@asynccontextmanager
async def front(switches: list[str], profile: str = PROFILE) -> AsyncIterator[str]:
    """The emulator's front in this event loop; gives its URL."""
    options = read([profile, "--seed", "1"])
    arm = planted(options)
    engine = engine_of(arm, options, Log(arm.profile.version))
    running = asyncio.create_task(engine.run())
    try:
        async with serving(Front(arm, engine).app(), parse(switches)) as url:
            yield url
    finally:
        engine.stop()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@contextmanager
def beside(switches: list[str], profile: str = PROFILE) -> Iterator[str]:
    """The same in a thread of its own, for a client that needs this one."""
    found: list[str] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    done = asyncio.Event()

    async def main() -> None:
        async with front(switches, profile) as url:
            found.append(url)
            ready.set()
            await done.wait()

    def run() -> None:
        try:
            loop.run_until_complete(main())
        finally:
            loop.close()
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(20)
        yield found[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(20)
