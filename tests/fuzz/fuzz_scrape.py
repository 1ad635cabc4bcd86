"""An answer of /metrics, whatever it is: one reading, with figures or with a failure."""

import math

import answers
import fuzzing

with fuzzing.instrumented():
    import httpx
    import msgspec

    from loadgen.clock import Clock
    from loadgen.engines import vllm
    from loadgen.records import Scrape
    from loadgen.server.scrape import Scraper


async def scraped(data: bytes) -> tuple[Scraper, Scrape]:
    """One reading."""
    scraper = Scraper(
        "http://127.0.0.1:1", engine=vllm.ENGINE, clock=Clock(source=answers.LOOP.time), sink=lambda _: None
    )
    async with httpx.AsyncClient(transport=answers.answering(data)) as client:
        return scraper, await scraper._read(client)


def one_input(data: bytes) -> None:
    """Figures or a failure, never both, and each in one line of JSON."""
    scraper, scrape = answers.LOOP.run_until_complete(scraped(data))
    fuzzing.outcome(scrape.failure, len(scrape.engines))
    assert bool(scrape.engines) == (scrape.failure is None)
    for line in (*scraper.warnings, *filter(None, (scrape.failure,))):
        fuzzing.check_line(line)
    assert all(math.isfinite(value) for rank in scrape.engines for value in rank.values.values())
    assert msgspec.json.decode(msgspec.json.encode(scrape), type=Scrape) == scrape


if __name__ == "__main__":
    fuzzing.fuzz(one_input, "scrape", most_bytes=4096)
