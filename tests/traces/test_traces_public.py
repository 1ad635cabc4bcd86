"""The smaller public formats, and what all of them have in common."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.trace_files import both_ways, recognised_by, refused, write

from loadgen.errors import UserError
from loadgen.traces.convert import import_trace
from loadgen.traces.read import read_trace

VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,100,7\n1.75,2730,167\n"
LENGTHS = ",num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n0,100,7,107,14.3\n1,2730,167,2897,16.3\n"


def test_vidur_with_arrivals(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", VIDUR)
    assert recognised_by(path) == ["vidur"]
    trace = both_ways(path)
    assert [(row.at_s, row.input_tokens, row.output_tokens) for row in trace.rows] == [(0, 100, 7), (1.5, 2730, 167)]
    assert trace.notes == ()


def test_vidurs_lengths_alone_are_for_a_closed_loop(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", LENGTHS)
    assert recognised_by(path) == ["vidur"]
    trace = both_ways(path)
    assert [(row.at_s, row.input_tokens) for row in trace.rows] == [(0, 100), (0, 2730)]
    assert trace.notes[0] == "no arrivals are recorded: all requests stand at 0 s; send them in a closed loop"


def test_a_malformed_row_of_vidur(tmp_path: Path) -> None:
    told = refused(write(tmp_path / "t.csv", VIDUR.replace("1.75", "late")))
    assert told == "FILE:3: arrived_at: 'late': should be seconds, 0 or more"
    told = refused(write(tmp_path / "t.csv", VIDUR.replace("167", "167.0")))
    assert told == "FILE:3: num_decode_tokens: '167.0': should be a whole number of tokens"


def test_azures_multimodal_rows_are_of_two_classes(tmp_path: Path) -> None:
    day = "2024-10-01 00:00:0"
    text = f"TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n{day}0.5,0,900,20\n{day}1,3,4000,9\n"
    trace = both_ways(write(tmp_path / "t.csv", text))
    assert [(row.input_tokens, row.kind) for row in trace.rows] == [(900, "text"), (4000, "images")]
    told = refused(write(tmp_path / "t.csv", text.replace(",3,", ",three,")))
    assert told == "FILE:3: NumImages: 'three': should be a whole number of tokens"


def test_mooncakes_tool_agents_share_a_long_prompt_of_their_system(tmp_path: Path) -> None:
    """The shape of its toolagent trace: fine milliseconds, prefixes of twelve whole blocks, short answers."""
    system = list(range(46, 58))
    rows = [
        {"timestamp": at, "input_length": 6144 + more, "output_length": 3, "hash_ids": system + ids}
        for at, more, ids in ((0, 0, []), (17, 1, [90]), (333, 600, [91, 92]))
    ]
    path = write(tmp_path / "t.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    trace = both_ways(path)
    assert [row.at_s for row in trace.rows] == [0, 0.017, 0.333]
    assert [row.blocks[:12] for row in trace.rows] == [tuple(system)] * 3
    assert trace.time_quantum_s is None


def call(at: str, prompt: int, completion: int, cached: int | None, **more: Any) -> dict[str, Any]:
    tokens = {"total": prompt + completion, "prompt": prompt, "completion": completion, "cached": cached}
    return {
        "message_id": "x",
        "timestamp": f"2026-03-02T10:00:{at}Z",
        "duration_ms": 1500,
        "initiator_type": "user",
        "model": "m",
        "result": "success",
        "status_code": 200,
        "tokens": tokens,
        "message_metadata": [{"type": "text", "role": "system", "sequenceId": 1, "token_len": 900}],
    } | more


def session(*turns: list[dict[str, Any]], name: str | None = "s") -> dict[str, Any]:
    listed = [{"turn_id": f"{number}", "llm_calls": calls, "tool_batches": []} for number, calls in enumerate(turns)]
    return {"session_id": name, "date": "2026-03-02", "turns": listed}


def file(folder: Path, *sessions: dict[str, Any]) -> Path:
    return write(folder / "t.jsonl", "".join(json.dumps(one) + "\n" for one in sessions))


def test_copilots_calls_follow_each_other_across_turns(tmp_path: Path) -> None:
    late, first, failed = (
        call("09.0", 3000, 20, 2900),
        call("01.0", 1000, 50, 800),
        call("02.7", 9, 9, 0, status_code=429),
    )
    path = file(tmp_path, session([first, failed], [late]), session([call("05.0", 10, 5, None)], name="other"))
    assert recognised_by(path) == ["copilot"]
    trace = both_ways(path)
    assert trace.dropped == {"failed call": 1}
    rows = [row for row in trace.rows if row.session == "s"]
    assert [(row.at_s, row.turn, row.input_tokens, row.output_tokens) for row in rows] == [
        (0, 1, 1000, 50),
        (8, 2, 3000, 20),
    ]
    assert [(row.prefix_tokens, row.cached_tokens) for row in rows] == [(None, 800), (2900, 2900)]
    assert [(row.think_s, row.duration_s, row.kind) for row in rows] == [(None, 1.5, "m"), (6.5, 1.5, "m")]


def test_a_session_of_copilot_is_recognised_by_its_beginning(tmp_path: Path) -> None:
    path = file(tmp_path, session([call(f"{second:02}.0", 10, 5, 0) for second in range(60)] * 8))
    assert len(path.read_text().splitlines()[0]) > 65_536
    assert recognised_by(path) == ["copilot"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (
            session([call("99.0", 1, 1, 0)]),
            "FILE:1: turns[0].llm_calls[0].timestamp: '2026-03-02T10:00:99.0Z': should be",
        ),
        (session([call("01.0", 1, 1, 0, timestamp=5)]), "FILE:1: turns[0].llm_calls[0].timestamp: 5: should be a time"),
        (session([], [call("01.0", 1, 1, -1)]), "FILE:1: turns[1].llm_calls[0].tokens.cached: -1: should be a whole"),
        (session([call("01.0", 1, 1, 0, tokens=None)]), "FILE:1: turns[0].llm_calls[0].tokens: None: should be an obj"),
        (
            session([call("01.0", 1, 1, 0, duration_ms="1 s")]),
            "FILE:1: turns[0].llm_calls[0].duration_ms: '1 s': should",
        ),
        (session([call("01.0", 1, 1, 0)]) | {"turns": [3]}, "FILE:1: turns: [3]: should be a list of objects"),
        (session([call("01.0", 1, 1, 0)], name=None), "FILE:1: session_id: missing"),
    ],
)
def test_a_malformed_session_of_copilot(tmp_path: Path, value: dict[str, Any], told: str) -> None:
    assert refused(file(tmp_path, value), format="copilot").startswith(told)


def test_sessions_that_outlast_all_arrivals_are_no_sign_of_a_wrong_unit(tmp_path: Path) -> None:
    turn = '{{"session_id": "{}", "timestamp": {}, "input_length": 5, "output_length": 1}}\n'
    starts = "".join(turn.format(number, number * 100) for number in range(200))
    path = write(tmp_path / "t", starts + turn.format(0, 1e11))
    assert import_trace([path], tmp_path / "out").span_s == 1e8


def test_what_was_forced_at_the_import_is_taken_from_then_on(tmp_path: Path) -> None:
    slow = "".join(f'{{"timestamp": {n * 2e8}, "input_length": 5, "output_length": 1}}\n' for n in range(100))
    path = write(tmp_path / "t", slow)
    with pytest.raises(UserError, match="--force-units"):
        import_trace([path], tmp_path / "out")
    import_trace([path], tmp_path / "out", force_units=True)
    assert read_trace(tmp_path / "out").rows[-1].at_s == 19_800_000


WEKA = {
    "id": "x",
    "models": ["m"],
    "block_size": 64,
    "hash_id_scope": "local",
    "requests": [
        {"t": 0, "type": "n", "model": "m", "in": 70, "out": 5, "hash_ids": [1], "api_time": 2.0, "think_time": 0.0},
        {
            "t": 3.5,
            "type": "subagent",
            "agent_id": "a",
            "duration_ms": 2000,
            "requests": [{"t": 0, "type": "s", "model": "h", "in": 70, "out": 5, "hash_ids": [2], "api_time": 1.0}],
        },
        {
            "t": 9.5,
            "type": "n",
            "model": "m",
            "in": 140,
            "out": 5,
            "hash_ids": [1, 3],
            "api_time": 2.0,
            "think_time": 4,
        },
    ],
}
BAILIAN = {
    "chat_id": 55,
    "parent_chat_id": -1,
    "timestamp": 0.5,
    "input_length": 20,
    "output_length": 9,
    "type": "text",
    "turn": 1,
    "hash_ids": [1, 2],
}
TRACELAB = {
    "provider": "claude",
    "session_id": "a",
    "round_index": 0,
    "model": "m",
    "input_tokens_total": 100,
    "prefix_tokens": 60,
    "newly_append_tokens": 40,
    "output_tokens": 9,
    "timing_events": [{"event_type": "user_message", "timestamp": "2026-06-01T05:40:20.151Z"}],
}
ANSWER = {
    "custom_id": "a",
    "response": {
        "status_code": 200,
        "body": {
            "model": "m",
            "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
        },
    },
    "error": None,
}
REQUEST = {
    "custom_id": "a",
    "url": "/v1/completions",
    "body": {"model": "m", "prompt": "a text", "max_tokens": 5},
}
STRANGE = (None, True, -1, 1.5, 2**80, 1e300, "x" * 300, [[]], {"a": 1}, "2026-99-99T00:00:00Z")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to everything inside of a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield (*path, key)
        yield from places(one, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of a value with something else at a path."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def complaint(path: Path, format: str) -> str | None:
    """What a reader says of a file; None if it takes it."""
    try:
        read_trace(path, format)
    except UserError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("format", "value"),
    [
        ("weka", WEKA),
        ("bailian", BAILIAN),
        ("tracelab", TRACELAB),
        ("copilot", session([call("01.0", 100, 5, 50)], [call("09.0", 200, 5, 150)])),
        ("openai_batch", ANSWER),
        ("openai_batch", REQUEST),
    ],
)
def test_a_strange_value_anywhere_is_read_or_told_in_one_line(tmp_path: Path, format: str, value: Any) -> None:
    path = tmp_path / "t.json"
    assert read_trace(write(path, json.dumps(value))).format == format
    for place in places(value):
        for new in STRANGE:
            write(path, json.dumps(replaced(value, place, new)))
            told = complaint(path, format)
            assert told is None or (told.startswith(str(path)) and "should" in told and "\n" not in told)
