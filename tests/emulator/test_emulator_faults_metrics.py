"""Faults of /metrics as the scraper sees them: what each reading says, and whether the server is asked again."""

import asyncio

import pytest
from emulator.fault_cases import CASES, Case
from fakes.streaming_app import App, serving

from loadgen.clock import Clock
from loadgen.emulator.faults import parse
from loadgen.engines.emulator import ENGINE
from loadgen.records import Scrape
from loadgen.server.scrape import Scraper

OF_METRICS = [case for case in CASES if case.fault.where == "metrics"]


def scraped(switch: str, readings: int) -> tuple[list[Scrape], list[str]]:
    """Up to so many readings; fewer where the scraper gives up."""
    found: list[Scrape] = []
    enough = asyncio.Event()

    def sink(scrape: Scrape) -> None:
        found.append(scrape)
        if len(found) == readings:
            enough.set()

    async def main() -> list[str]:
        async with serving(App(), parse([switch])) as url:
            scraper = Scraper(url, engine=ENGINE, clock=Clock(), sink=sink, interval_s=0.02, timeout_s=0.25)
            reading = asyncio.create_task(scraper.run())
            waiting = asyncio.create_task(enough.wait())
            await asyncio.wait((reading, waiting), return_when=asyncio.FIRST_COMPLETED, timeout=10)
            for task in (reading, waiting):
                task.cancel()
            await asyncio.gather(reading, waiting, return_exceptions=True)
            await asyncio.sleep(0.4 if "slow" in switch else 0)  # its server answers into the void
            return scraper.warnings

    return found, asyncio.run(main())


@pytest.mark.parametrize("case", OF_METRICS, ids=lambda case: case.switch)
def test_a_reading_fails_as_documented(case: Case):
    found, warnings = scraped(case.switch, 2)
    assert case.says in (found[0].failure or "")
    gives_up = "not asked again" in case.says
    assert (len(found), len(warnings)) == ((1, 1) if gives_up else (2, 0))


def test_a_reading_that_is_late_now_and_then_costs_only_itself():
    found, warnings = scraped("metrics-slow=0.4@2", 3)
    assert [scrape.failure for scrape in found] == [None, "no answer within 0.25 s", None]
    assert warnings == []
