"""What a streamed token costs the client: CPU of loadgen, of a bare protocol, of httpx and of aiohttp.

    python benchmarks/client_cost.py [--streams 64 512] [--tokens 200] [--repeats 5] [--json]

One firehose server on one core, each client in a process of its own on another, one after the other in turn so that
drift hits all alike. loadgen does all that it does in a run: the body of the request, the stamps, the decoded events,
the `Sample`. The others do the least that they can: read, and stamp what they read; no decoding. `bare` is an
`asyncio.Protocol` that stamps and feeds httptools, nothing more. What it costs hangs on the C library's allocator, for
asyncio gets 256 KiB of memory for every read: with glibc's defaults most of it is page faults (try it with
MALLOC_TRIM_THRESHOLD_=67108864). `buffered` is the same on an `asyncio.BufferedProtocol`, which has no such allocation,
as loadgen has none: the floor of what asyncio allows, shown beside the targets.
CPU is user and system time of the process from the start of the first request to the end of the last one, after one
short round on the same connections: imports, connecting and the first calls are not counted.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
INTERVAL_MS = 20.0
WARMUP_TOKENS = 5
# What to compare, and the most that is promised; None: told, not promised.
RATIOS: tuple[tuple[str, str, float | None], ...] = (
    ("loadgen", "bare", 1.25),
    ("loadgen", "buffered", None),
    ("loadgen", "aiohttp", 0.6),
)

Round = Callable[[int], Awaitable[None]]


def body(tokens: int) -> bytes:
    """A request for `tokens` tokens."""
    return json.dumps({"model": "m", "prompt": [1, 2, 3, 4], "max_tokens": tokens, "stream": True}).encode()


async def with_loadgen(port: int, streams: int, measure: Callable[[Round], Awaitable[None]]) -> None:
    """The client under test."""
    from loadgen.clock import Clock
    from loadgen.drive.client import Client
    from loadgen.records import Request, Run

    async with Client(base_url=f"http://127.0.0.1:{port}", endpoint="completions", clock=Clock()) as client:

        async def one(tokens: int) -> None:
            request = Request(index=0, runs=(Run("k", 4),), output_tokens=tokens)
            sample = await client.send(body(tokens), request=request, stage="s")
            if not sample.ok or len(sample.events_s) != tokens:
                raise RuntimeError(f"{len(sample.events_s)} of {tokens} events: {sample.failure}")

        async def round_of(tokens: int) -> None:
            await asyncio.gather(*(one(tokens) for _ in range(streams)))

        await measure(round_of)


async def with_bare(port: int, streams: int, measure: Callable[[Round], Awaitable[None]]) -> None:
    """The floor: stamp, parse HTTP, wait for the end."""
    import httptools

    loop = asyncio.get_running_loop()

    class Bare(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def ask(self, tokens: int) -> "asyncio.Future[None]":
            data = body(tokens)
            self.stamps: list[float] = []
            self.stamp = self.stamps.append
            self.feed = httptools.HttpResponseParser(self).feed_data
            self.end = loop.create_future()
            head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
            self.transport.write(head.encode() + data)
            return self.end

        def data_received(self, data: bytes) -> None:
            self.stamp(time.monotonic())
            self.feed(data)

        def on_message_complete(self) -> None:
            self.end.set_result(None)

    made = [await loop.create_connection(Bare, "127.0.0.1", port) for _ in range(streams)]

    async def round_of(tokens: int) -> None:
        await asyncio.gather(*(protocol.ask(tokens) for _, protocol in made))

    await measure(round_of)
    for transport, _ in made:
        transport.abort()


async def with_buffered(port: int, streams: int, measure: Callable[[Round], Awaitable[None]]) -> None:
    """The floor without asyncio's fresh 256 KiB per read, whose price hangs on the C library's memory allocator."""
    import httptools

    loop = asyncio.get_running_loop()
    buffer = memoryview(bytearray(256 * 1024))

    class Buffered(asyncio.BufferedProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def ask(self, tokens: int) -> "asyncio.Future[None]":
            data = body(tokens)
            self.stamps: list[float] = []
            self.stamp = self.stamps.append
            self.feed = httptools.HttpResponseParser(self).feed_data
            self.end = loop.create_future()
            head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
            self.transport.write(head.encode() + data)
            return self.end

        def get_buffer(self, sizehint: int) -> memoryview:
            return buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.stamp(time.monotonic())
            self.feed(buffer[:nbytes])

        def on_message_complete(self) -> None:
            self.end.set_result(None)

    made = [await loop.create_connection(Buffered, "127.0.0.1", port) for _ in range(streams)]

    async def round_of(tokens: int) -> None:
        await asyncio.gather(*(protocol.ask(tokens) for _, protocol in made))

    await measure(round_of)
    for transport, _ in made:
        transport.abort()


async def with_httpx(port: int, streams: int, measure: Callable[[Round], Awaitable[None]]) -> None:
    """Stock httpx, without a limit on connections."""
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    url = f"http://127.0.0.1:{port}/v1/completions"
    async with httpx.AsyncClient(limits=limits, timeout=None, trust_env=False) as client:

        async def one(tokens: int) -> None:
            stamps = []
            async with client.stream("POST", url, content=body(tokens)) as response:
                async for _ in response.aiter_raw():
                    stamps.append(time.monotonic())

        async def round_of(tokens: int) -> None:
            await asyncio.gather(*(one(tokens) for _ in range(streams)))

        await measure(round_of)


async def with_aiohttp(port: int, streams: int, measure: Callable[[Round], Awaitable[None]]) -> None:
    """aiohttp, without a limit on connections."""
    import aiohttp

    url = f"http://127.0.0.1:{port}/v1/completions"
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
    ) as session:

        async def one(tokens: int) -> None:
            stamps = []
            async with session.post(url, data=body(tokens)) as response:
                async for _ in response.content.iter_any():
                    stamps.append(time.monotonic())

        async def round_of(tokens: int) -> None:
            await asyncio.gather(*(one(tokens) for _ in range(streams)))

        await measure(round_of)


CLIENTS = {
    "loadgen": with_loadgen,
    "bare": with_bare,
    "buffered": with_buffered,
    "httpx": with_httpx,
    "aiohttp": with_aiohttp,
}


def run_client(arguments: argparse.Namespace) -> None:
    """In the client's process: one measurement, printed as CPU seconds per token."""
    os.sched_setaffinity(0, {arguments.client_core})
    streams, tokens = arguments.streams[0], arguments.tokens

    async def measure(round_of: Round) -> None:
        await round_of(WARMUP_TOKENS)
        gc.collect()
        gc.freeze()
        before = time.process_time()
        await round_of(tokens)
        print((time.process_time() - before) / (streams * tokens))

    asyncio.run(CLIENTS[arguments.client](arguments.port, streams, measure))


@contextmanager
def firehose(core: int) -> Iterator[int]:
    """The server's port, while it runs."""
    argv = [sys.executable, str(HERE / "firehose.py"), "--core", str(core), "--interval-ms", str(INTERVAL_MS)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None  # noqa: S101
        try:
            yield int(server.stdout.readline())
        finally:
            if server.stdin is not None:
                server.stdin.close()


def cost_s(client: str, port: int, streams: int, arguments: argparse.Namespace) -> float:
    """CPU seconds per token of one client in a process of its own."""
    argv = [sys.executable, __file__, "--client", client, "--port", str(port), "--streams", str(streams)]
    argv += ["--tokens", str(arguments.tokens), "--client-core", str(arguments.client_core)]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    return float(subprocess.run(argv, check=True, capture_output=True, text=True, env=environment).stdout)


def main() -> int:
    """Measures every client in turn and compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--server-core", type=int, default=1)
    parser.add_argument("--client-core", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        run_client(arguments)
        return 0
    results = {}
    with firehose(arguments.server_core) as port:
        for streams in arguments.streams:
            costs: dict[str, list[float]] = {client: [] for client in arguments.only}
            for _ in range(arguments.repeats):
                for client in arguments.only:
                    costs[client].append(cost_s(client, port, streams, arguments))
            results[streams] = costs
    return report(results, arguments)


def report(results: dict[int, dict[str, list[float]]], arguments: argparse.Namespace) -> int:
    """Prints medians, spread and ratios; 1 if a target is missed."""
    missed = 0
    table = []
    for streams, costs in results.items():
        medians = {client: statistics.median(values) for client, values in costs.items()}
        for client, values in costs.items():
            low, high = min(values) * 1e6, max(values) * 1e6
            table.append({"streams": streams, "client": client, "us_per_token": medians[client] * 1e6, "all": values})
            if not arguments.json:
                print(
                    f"{streams:4} streams  {client:8} {medians[client] * 1e6:7.2f} µs/token  ({low:.2f} … {high:.2f})"
                )
        for client, other, limit in RATIOS:
            if client in medians and other in medians:
                ratios = [mine / theirs for mine, theirs in zip(costs[client], costs[other], strict=True)]
                ratio = statistics.median(ratios)
                missed += limit is not None and ratio > limit
                table.append({"streams": streams, "ratio": f"{client}/{other}", "value": ratio, "target": limit})
                if not arguments.json:
                    spread = f"({min(ratios):.2f} … {max(ratios):.2f})"
                    said = "" if limit is None else f", target <= {limit}: {'met' if ratio <= limit else 'MISSED'}"
                    print(f"{streams:4} streams  {client}/{other} = {ratio:.2f} {spread}{said}")
    if arguments.json:
        print(json.dumps(table))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
