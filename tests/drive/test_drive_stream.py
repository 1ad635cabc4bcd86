"""What a stream says: content, usage, endings, errors; the same however it is cut."""

import itertools
import json

import pytest
from fakes.streams import DONE, delta, event, token, usage
from hypothesis import given, strategies as st

from loadgen.drive.stream import Reading, Recording


def read(*pieces: bytes) -> Reading:
    """A reading of pieces that arrive at 1, 2, 3, ... seconds."""
    reading = Reading()
    for at, piece in enumerate(pieces, 1):
        reading.take([float(at), piece])
    reading.finish()
    return reading


def test_completions_stream() -> None:
    reading = read(token(" a"), token(" b"), token("", "length"), usage(2, prompt=7, cached=3), DONE)
    assert reading.events_s == [1.0, 2.0]
    assert (reading.prompt_tokens, reading.output_tokens, reading.cached_tokens) == (7, 2, 3)
    assert (reading.finish_reason, reading.done, reading.error, reading.malformed) == ("length", True, None, None)


def test_first_token_is_the_first_content_reasoning_or_tool_text() -> None:
    tool = [{"index": 0, "function": {"arguments": '{"a'}}]
    reading = read(
        delta(role="assistant", content=None),
        delta(content=""),
        b": ping\n\n",
        event({"choices": []}),
        delta(reasoning_content="hm"),
        delta(reasoning="hm"),
        delta(content="a"),
        delta(tool_calls=tool),
        delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": ""}}]),
    )
    assert reading.events_s == [5.0, 6.0, 7.0, 8.0, 9.0]


def test_usage_in_a_chunk_with_choices() -> None:
    last = event({"choices": [{"text": " b", "finish_reason": "stop"}], "usage": {"completion_tokens": 2}})
    reading = read(token(" a"), last)
    assert reading.events_s == [1.0, 2.0]
    assert (reading.output_tokens, reading.prompt_tokens, reading.finish_reason) == (2, None, "stop")


@pytest.mark.parametrize("count", [-1, 10**8, 10**40])
def test_a_count_that_cannot_be_is_not_known(count: int) -> None:
    reading = read(token(" a"), usage(count, prompt=count, cached=count), DONE)
    assert (reading.prompt_tokens, reading.output_tokens, reading.cached_tokens) == (None, None, None)


def test_counts_of_zero_are_none_where_there_must_have_been_tokens() -> None:
    reading = read(token(" a"), usage(0, prompt=0), DONE)
    assert (reading.prompt_tokens, reading.output_tokens) == (None, None)
    assert read(usage(0), DONE).output_tokens == 0
    assert read(token(" a", usage={"completion_tokens": 0}), token(" b"), usage(2), DONE).output_tokens == 2


def test_the_last_of_continuous_usage_counts() -> None:
    assert read(token(usage={"completion_tokens": 1}), token(usage={"completion_tokens": 2})).output_tokens == 2


def test_an_event_nested_without_end_is_malformed() -> None:
    for opening in (b"[", b'{"error": ['):
        assert read(token(), b"data: " + opening + b"[" * 100_000 + b"\n\n", DONE).malformed is not None


@pytest.mark.parametrize("depth", [100, 450, 900])
def test_content_of_lists_in_lists_is_no_crash(depth: int) -> None:
    deep = b'data: {"choices": [{"text": ' + b"[" * depth + b"]" * depth + b"}]}\n\n"
    assert read(token(), deep, DONE).events_s == [1.0]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r", b"\n"])
def test_a_line_end_within_json_ends_the_line_in_a_piece_of_its_own_too(end: bytes) -> None:
    torn = b'data: {"choices": [{' + end + b'"text": " b"}]}\n\n'
    alone, together = read(token(), torn, token(), DONE), read(token() + torn + token() + DONE)
    assert (alone.events_s, together.events_s) == ([1.0, 3.0], [1.0, 1.0])
    assert alone.malformed == together.malformed == 'event is no JSON object: {"choices": [{'


def test_nothing_after_the_end_mark_counts() -> None:
    reading = read(token(), DONE + token(), token(), event({"error": "late"}))
    assert (reading.events_s, reading.error) == ([1.0], None)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "out of memory", "code": 500}}, "out of memory"),
        ({"error": "boom"}, "boom"),
        ({"error": {"code": 7}}, '{"code":7}'),
        ({"object": "error", "message": "too long", "code": 400}, "too long"),
    ],
)
def test_an_error_in_the_stream(body: object, said: str) -> None:
    reading = read(token(), event(body))
    assert reading.error == said
    assert reading.events_s == [1.0]


def test_unusual_types_are_understood() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": [{"text": "b"}]}]
    reading = read(
        delta(content=parts),
        event({"choices": [{"text": 5, "finish_reason": 3}], "usage": {"completion_tokens": "12"}}),
        event({"choices": [{"delta": {"tool_calls": [{"function": {"name": None, "arguments": {"x": 1}}}]}}]}),
        event({"choices": "none", "usage": "none"}),
        event({"choices": [{"delta": {"content": []}}], "usage": {"completion_tokens": "many"}}),
    )
    assert reading.events_s == [1.0, 3.0]
    assert (reading.output_tokens, reading.finish_reason, reading.malformed) == (12, "3", None)


@pytest.mark.parametrize("garbage", [b"data: <html>\n\n", b"data: {]\n\n", b"data: [1]\n\n", b'data: "x"\n\n'])
def test_garbage_is_named(garbage: bytes) -> None:
    reading = read(token(), garbage, token())
    assert reading.malformed is not None
    assert garbage[6:-2].decode() in reading.malformed
    assert reading.events_s == [1.0, 3.0]


def test_text_digest_is_of_the_text_alone() -> None:
    one = read(token(" the cat"), DONE)
    assert one.text_digest() == read(token(" the"), token(" cat"), DONE).text_digest()
    assert one.text_digest() != read(token(" the dog"), DONE).text_digest()
    assert read(DONE).text_digest() is None
    spaced = b'data:  { "choices" : [ { "text" : "\\u0020the c\\u0061t" } ] }\r\n\r\n'
    assert read(spaced).text_digest() == one.text_digest()


TEXTS = st.lists(st.text(alphabet='a"\\{}\n\r\u00e9\u2028:', max_size=6), max_size=8)


@given(TEXTS, st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(0, 2000), max_size=30), st.booleans())
def test_any_cut_gives_the_same_events_at_the_instants_of_their_blank_lines(
    texts: list[str], ending: str, cuts: list[int], spaced: bool
) -> None:
    separators = (" , ", " : ") if spaced else (",", ":")
    bodies = [json.dumps({"choices": [{"text": text}]}, separators=separators) for text in texts]
    events = [f"data: {body}{ending}{ending}".encode() for body in bodies]
    stream = b"".join(events)
    at = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    recording: Recording = []
    for start, end in itertools.pairwise(at):
        recording += [float(end), stream[start:end]]  # a piece "arrives" at the position where it ends
    reading = Reading()
    half = len(recording) // 2
    reading.take(recording[:half])
    reading.take(recording[half:])
    complete = []
    position = 0
    for text, data in zip(texts, events, strict=True):
        position += len(data)
        # with CRLF the CR of the blank line ends it
        ends = position - (ending == "\r\n")
        if text:
            complete.append(float(next(cut for cut in at if cut >= ends)))
    assert reading.events_s == complete
    assert reading.malformed is None
