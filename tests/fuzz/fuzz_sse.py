"""An event stream, whole and in any pieces: the same events, the same reading, a documented ending."""

import re
import typing

import fuzzing

with fuzzing.instrumented():
    import httpx
    import msgspec

    from loadgen.drive.exchange import Exchange
    from loadgen.drive.failures import DETAIL_CHARS, Expects, judge
    from loadgen.drive.sse import BOM, Decoder
    from loadgen.drive.stream import MOST_TOKENS, Reading
    from loadgen.records import Failure, FailureKind

KINDS = frozenset(typing.get_args(FailureKind))
SLICE = 5
EVENTS = re.compile(rb"(?<=\n\n)")  # as most servers write: an event at a time


def events(pieces: list[bytes]) -> list[bytes]:
    """The data of all events, the unfinished last one included."""
    decoder = Decoder()
    found = [data for piece in pieces for data in decoder.feed(piece)]
    return found + decoder.rest()


def as_the_format_says(stream: bytes) -> list[bytes]:
    """https://html.spec.whatwg.org/multipage/server-sent-events.html, line by line, with a last event kept."""
    found: list[bytes] = []
    held: list[bytes] = []
    for line in [*re.split(rb"\r\n|\r|\n", stream.removeprefix(BOM)), b""]:
        field, _, value = line.partition(b":")
        if field == b"data":
            held.append(value.removeprefix(b" "))
        if not line and held:
            found.append(b"\n".join(held))
            held = []
    return found


def read(pieces: list[bytes]) -> Exchange:
    """The exchange whose body came in these pieces, at 1, 2, 3, ... seconds, read a few items at a time."""
    exchange = Exchange(0.0)
    exchange.answered(httpx.Response(200, headers={"content-type": "text/event-stream"}))
    exchange.recording = [item for at, piece in enumerate(pieces, 1) for item in (float(at), piece)]
    while exchange.read(SLICE):
        pass
    exchange.read_rest()
    return exchange


def told(reading: Reading) -> tuple[object, ...]:
    """All that a reading says and that does not depend on when it came."""
    counts = (len(reading.events_s), reading.prompt_tokens, reading.output_tokens, reading.cached_tokens)
    ending = (reading.finish_reason, reading.done, reading.error, reading.malformed)
    return (*counts, *ending, reading.text_digest())


def check(exchange: Exchange, pieces: int) -> None:
    """What holds for any reading."""
    reading = exchange.reading
    assert reading.events_s == sorted(reading.events_s)
    assert set(reading.events_s) <= {float(at) for at in range(1, pieces + 1)}
    for count in (reading.prompt_tokens, reading.output_tokens, reading.cached_tokens):
        assert count is None or 0 <= count <= MOST_TOKENS
    for expects in (Expects(), Expects(done_required=False, exact_output=False)):
        failure = judge(exchange, 4, expects, ())
        if failure is not None:
            fuzzing.outcome(failure.kind, failure.detail[:40], reading.text_digest() is None, bool(reading.events_s))
            assert failure.kind in KINDS
            fuzzing.check_line(failure.detail, DETAIL_CHARS)
            assert msgspec.json.decode(msgspec.json.encode(failure), type=Failure) == failure


def one_input(data: bytes) -> None:
    """Events do not depend on the cut; readings do not either; how a stream ends is one of the documented ways."""
    expected, whole = as_the_format_says(data), told(read([data]).reading)
    for pieces in (*fuzzing.cuts(data, most=300), EVENTS.split(data)):
        assert events(pieces) == expected
        exchange = read(pieces)
        assert told(exchange.reading) == whole
        check(exchange, len(pieces))


if __name__ == "__main__":
    fuzzing.fuzz(one_input, "sse", most_bytes=4096, has_json=True)
