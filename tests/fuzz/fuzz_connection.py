"""An HTTP response as bytes, fed to the lean transport's connection, which is lost afterwards: always one sample."""

import asyncio
import math
import typing
from collections.abc import Sequence

import fuzzing

with fuzzing.instrumented():
    import msgspec

    from loadgen.clock import Clock
    from loadgen.drive.client import Client
    from loadgen.drive.connection import UNASKED, Connection
    from loadgen.drive.exchange import LeanCourier
    from loadgen.drive.failures import DETAIL_CHARS
    from loadgen.drive.transport import LeanTransport
    from loadgen.records import FailureKind, Request, Run, Sample

KINDS = frozenset(typing.get_args(FailureKind))
REQUEST = Request(index=0, runs=(Run("r", 3),), output_tokens=2)
LOST: tuple[Exception | None, ...] = (None, ConnectionResetError("reset"))
LOOP = asyncio.new_event_loop()


class Wire(asyncio.Transport):
    """A socket that takes what is written and knows whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = False

    def write(self, data: object) -> None:
        """The request is of no interest."""

    def is_closing(self) -> bool:
        """True once it was closed."""
        return self.closing

    def abort(self) -> None:
        """Closed at once."""
        self.closing = True


class Fed(LeanTransport):
    """The lean transport with a connection that is given `pieces`, one per turn of the loop, then lost by `error`."""

    def __init__(self, pieces: Sequence[bytes], error: Exception | None) -> None:
        super().__init__(now=LOOP.time)
        self._pieces = pieces
        self._error = error
        self.connection: Connection | None = None

    async def _connect(self, key: tuple[str, str, int], free: list[Connection]) -> Connection:
        self.connection = connection = Connection(LOOP.time, free, memoryview(bytearray(8192)))
        wire = Wire()
        connection.connection_made(wire)
        LOOP.call_soon(self._feed, connection, wire, 0)
        return connection

    def _feed(self, connection: Connection, wire: Wire, number: int) -> None:
        if number < len(self._pieces) and not wire.closing:
            piece = self._pieces[number]
            connection.get_buffer(-1)[: len(piece)] = piece
            connection.buffer_updated(len(piece))
            LOOP.call_soon(self._feed, connection, wire, number + 1)
        else:
            wire.closing = True
            connection.connection_lost(self._error)


async def sample_of(pieces: Sequence[bytes], error: Exception | None) -> Sample:
    """What the client makes of these bytes."""
    client = Client(base_url="http://127.0.0.1:1", endpoint="completions", clock=Clock(source=LOOP.time))
    transport = Fed([piece for piece in pieces if piece], error)
    client._courier = LeanCourier(transport)
    async with asyncio.timeout(1):
        sample = await client.send(b"{}", request=REQUEST, stage="s")
    assert client.in_flight == 0
    connection = transport.connection
    assert connection is not None
    assert connection.parser is UNASKED
    for _ in range(len(pieces) + 2):
        await asyncio.sleep(0)
    return sample


def told(sample: Sample) -> tuple[object, ...]:
    """All that does not depend on when it came. How the parser words a fault may depend on the cut."""
    counts = (len(sample.events_s), sample.prompt_tokens, sample.output_tokens, sample.cached_tokens)
    kind = sample.failure and sample.failure.kind
    return (*counts, sample.finish_reason, sample.status, sample.text_digest, sample.retries, kind)


def check(sample: Sample) -> None:
    """What holds for any sample."""
    ending = sample.failure and (sample.failure.kind, sample.failure.detail[:60])
    fuzzing.outcome(sample.status, ending, bool(sample.events_s), sample.retry_after_s is None)
    assert sample.retry_after_s is None or (math.isfinite(sample.retry_after_s) and sample.retry_after_s >= 0)
    assert sample.first_byte_s is None or sample.sent_s <= sample.first_byte_s <= sample.end_s
    assert sample.failure is None or sample.failure.kind in KINDS - {"stopped", "timeout", "connect"}
    assert sample.failure is not None or sample.status == 200
    if sample.failure is not None:
        fuzzing.check_line(sample.failure.detail, DETAIL_CHARS)
    assert msgspec.json.decode(msgspec.json.encode(sample), type=Sample) == sample


def one_input(data: bytes) -> None:
    """A sample comes out, the same one however the bytes are cut, and the connection is left in order."""
    for error in LOST:
        whole: tuple[object, ...] | None = None
        for pieces in fuzzing.cuts(data, most=120):
            sample = LOOP.run_until_complete(sample_of(pieces, error))
            check(sample)
            whole = whole or told(sample)
            assert told(sample) == whole


if __name__ == "__main__":
    fuzzing.fuzz(one_input, "connection", most_bytes=4096, has_json=True)
