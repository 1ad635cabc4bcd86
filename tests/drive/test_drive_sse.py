"""The decoder against a reference written character by character from the format's text."""

import itertools

import pytest
from hypothesis import given, strategies as st

from loadgen.drive import sse
from loadgen.drive.sse import Decoder


def reference(stream: str) -> list[str]:
    """https://html.spec.whatwg.org/multipage/server-sent-events.html, step by step."""
    lines, line, at = [], "", 0
    stream = stream.removeprefix("\ufeff")
    while at < len(stream):
        if stream[at] in "\r\n":
            lines.append(line)
            line = ""
            at += 2 if stream[at : at + 2] == "\r\n" else 1
        else:
            line += stream[at]
            at += 1
    events, data, some = [], "", False
    for line in lines:
        if not line:
            if some:
                events.append(data.removesuffix("\n"))
            data, some = "", False
            continue
        name, _, value = line.partition(":")
        if name == "data":
            data += value.removeprefix(" ") + "\n"
            some = True
    return events


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    return [stream[a:b] for a, b in itertools.pairwise(at)]


def fed(parts: list[bytes]) -> list[str]:
    decoder = Decoder()
    return [data.decode() for part in parts for data in decoder.feed(part)]


LINE = st.sampled_from(["data: {}", "data:x", "data", ": ping", "event: e", "id: 7", "data: é\ufeff", "retry", "", ""])
ENDING = st.sampled_from(["\n", "\r", "\r\n"])
STREAM = st.tuples(st.sampled_from(["", "\ufeff"]), st.lists(st.tuples(LINE, ENDING), max_size=12)).map(
    lambda given: given[0] + "".join(line + ending for line, ending in given[1])
)


@given(STREAM, st.lists(st.integers(0, 500), max_size=20))
def test_any_cut_gives_what_the_format_says(stream: str, cuts: list[int]) -> None:
    assert fed(pieces(stream.encode(), cuts)) == reference(stream)


@given(STREAM)
def test_byte_by_byte_gives_the_same(stream: str) -> None:
    whole = stream.encode()
    assert fed([whole[n : n + 1] for n in range(len(whole))]) == fed([whole])


def test_an_event_is_complete_with_its_blank_line_and_not_before() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: a") == []
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"\n") == [b"a"]
    assert decoder.feed(b"data: b\r\n\r") == [b"b"]
    assert decoder.feed(b"\ndata: c\n\n") == [b"c"]


def test_a_last_event_without_its_blank_line_is_the_rest() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: a\n\ndata: [DO") == [b"a"]
    assert decoder.feed(b"NE]") == []
    assert decoder.rest() == [b"[DONE]"]
    assert decoder.rest() == []


def test_a_byte_order_mark_is_one_at_the_beginning_alone() -> None:
    decoder = Decoder()
    assert decoder.feed(b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n\xef\xbb\xbfdata: c") == [b"a"]
    assert decoder.rest() == []
    decoder = Decoder()
    assert decoder.feed(b"\xef\xbb\xbfdata: a") == []
    assert decoder.rest() == [b"a"]


def test_an_event_without_end_takes_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MOST_BYTES", 100)
    decoder = Decoder()
    assert decoder.feed(b"data: a\n\ndata: ") == [b"a"]
    for piece in (b"b" * 99, b"c", b"\n", b"d\n", b"e"):
        for _ in range(1_000):
            assert decoder.feed(piece + b"x") == []
        assert sum(map(len, decoder._held)) < 300
    assert decoder.feed(b"\n") == []
    (data,) = decoder.feed(b"\ndata: f\n")
    assert data.startswith(b"b" * 99 + b"x")
    assert decoder.feed(b"\n") == [b"f"]


def test_several_data_lines_are_one_event() -> None:
    assert Decoder().feed(b"data: {\ndata: }\n\n: ping\n\ndata:  two\n\n") == [b"{\n}", b" two"]


def test_settled_only_between_events() -> None:
    decoder = Decoder()
    assert not decoder.settled  # a byte-order mark may come
    decoder.feed(b"data: a\n\n")
    assert decoder.settled
    decoder.feed(b"da")
    assert not decoder.settled
    decoder.feed(b"ta: a\r\r")
    assert not decoder.settled  # an LF may belong to the CR
