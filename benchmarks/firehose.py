"""A server that streams pre-rendered events like vLLM's and does nothing else: what clients are measured against.

    python benchmarks/firehose.py [--core N] [--interval-ms MS] [--record FILE]

It prints its port, streams `max_tokens` events per request (about 250 bytes each, one chunk of HTTP and one write per
event), and ends when its standard input does. All streams advance together, one event per interval, as the sequences
of an engine's batch do; with `--interval-ms 0` a request is answered in one go. With `--record` the instant just
before each event's write (CLOCK_MONOTONIC) is kept, and written to FILE at the end as JSON lines
{"id": ..., "at": [...]}, where id is the request's `user` field.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
import time
from pathlib import Path

HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: firehose\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
ID = "cmpl-7d4b1c0a9e2f4c6b8a1d3e5f70819203"


def event(choices: list[dict[str, object]], usage: dict[str, int] | None) -> bytes:
    """One event as vLLM writes it."""
    body = {
        "id": ID,
        "object": "text_completion",
        "created": 1764000000,
        "model": "tiny-random-llama",
        "choices": choices,
        "usage": usage,
    }
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def choice(finish: str | None) -> list[dict[str, object]]:
    """A choice that carries one token."""
    rest = {"stop_reason": None, "token_ids": None}
    return [{"index": 0, "text": " the", "logprobs": None, "finish_reason": finish, **rest}]


TOKEN = chunk(event(choice(None), None))
LAST = chunk(event(choice("length"), None))
END = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def ending(tokens: int) -> bytes:
    """The last events and the end of the body."""
    usage = {"prompt_tokens": 4, "total_tokens": 4 + tokens, "completion_tokens": tokens}
    return chunk(event([], usage)) + END


class Stream(asyncio.Protocol):
    """One connection: requests one after another."""

    def __init__(self, firehose: "Firehose") -> None:
        self.firehose = firehose
        self.buffer = b""
        self.left = 0
        self.tokens = 0
        self.user = ""
        self.at: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self.buffer += data
        head, end, rest = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(rest) < length:
            return
        self.buffer = rest[length:]
        body = json.loads(rest[:length])
        self.left = self.tokens = body["max_tokens"]
        self.user = body.get("user", "")
        self.at = []
        self.firehose.begin(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        self.firehose.active.pop(self, None)


class Firehose:
    """All streams, advanced together."""

    def __init__(self, interval_s: float, record: Path | None) -> None:
        self.interval_s = interval_s
        self.record = record
        self.recorded: list[tuple[str, list[float]]] = []
        self.active: dict[Stream, None] = {}

    def begin(self, stream: Stream) -> None:
        """Answers at once, or with the next steps."""
        if self.interval_s:
            stream.transport.write(HEAD)
            self.active[stream] = None
        else:
            tokens = stream.tokens
            stream.transport.write(HEAD + TOKEN * (tokens - 1) + LAST + ending(tokens))

    async def steps(self) -> None:
        """One event for each stream per interval, at absolute instants."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due += self.interval_s
            await asyncio.sleep(max(0.0, due - loop.time()))
            for stream in list(self.active):
                self.step(stream)

    def step(self, stream: Stream) -> None:
        """One event."""
        stream.left -= 1
        data = TOKEN if stream.left else LAST + ending(stream.tokens)
        if self.record is not None:
            stream.at.append(time.monotonic())
        stream.transport.write(data)
        if not stream.left:
            del self.active[stream]
            if self.record is not None:
                self.recorded.append((stream.user, stream.at))

    def save(self) -> None:
        """Writes what was recorded."""
        if self.record is not None:
            lines = [json.dumps({"id": user, "at": at}) + "\n" for user, at in self.recorded]
            self.record.write_text("".join(lines))


async def serve(arguments: argparse.Namespace) -> None:
    """Serves until standard input ends."""
    firehose = Firehose(arguments.interval_ms / 1000, arguments.record)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Stream(firehose), "127.0.0.1", 0, backlog=4096)
    steps = asyncio.create_task(firehose.steps()) if firehose.interval_s else None
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()
    if steps is not None:
        steps.cancel()
    firehose.save()


def main() -> None:
    """Reads the arguments and serves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", type=int)
    parser.add_argument("--interval-ms", type=float, default=20.0)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    gc.freeze()
    asyncio.run(serve(arguments))


if __name__ == "__main__":
    main()
