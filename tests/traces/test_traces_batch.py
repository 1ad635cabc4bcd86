"""OpenAI batch files: answers, requests, or both; no arrivals, and never a word of the text."""

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.trace_files import both_ways, recognised_by, refused, write

from loadgen.errors import UserError
from loadgen.traces.convert import import_trace
from loadgen.traces.read import read_trace

CLOSED = "a batch has no arrivals: all requests stand at 0 s; send them in a closed loop"
SECRET = "the words of a user"


def request(key: str, **body: Any) -> dict[str, Any]:
    given = {"model": "m", "messages": [{"role": "user", "content": SECRET}], "max_tokens": 256} | body
    return {"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": given}


def answer(key: str, usage: Any, **more: Any) -> dict[str, Any]:
    body = {"model": "m-2", "choices": [{"message": {"content": SECRET}}], "usage": usage}
    return {
        "id": f"batch_{key}",
        "custom_id": key,
        "response": {"status_code": 200, "request_id": "q", "body": body},
        "error": None,
    } | more


ANSWERS = [
    answer("a", {"prompt_tokens": 1532, "completion_tokens": 210, "prompt_tokens_details": {"cached_tokens": 1024}}),
    answer("b", {"input_tokens": 15, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 0}}),
    answer("c", None, response={"status_code": 429, "body": {"error": {"message": SECRET}}}),
    answer("d", None, response=None, error={"code": "batch_expired", "message": SECRET}),
    answer("e", {"prompt_tokens": 9, "total_tokens": 9}),
    answer("f", None),
]
REQUESTS = [request(key) for key in "abcdefg"]


def file(path: Path, rows: list[dict[str, Any]]) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def test_answers_have_the_counts_and_failures_are_dropped_by_reason(tmp_path: Path) -> None:
    path = file(tmp_path / "out", ANSWERS)
    assert recognised_by(path) == ["openai_batch"]
    trace = both_ways(path)
    assert [(row.at_s, row.input_tokens, row.output_tokens, row.cached_tokens, row.kind) for row in trace.rows] == [
        (0, 1532, 210, 1024, "m-2"),
        (0, 15, 7, 0, "m-2"),
    ]
    assert trace.dropped == {"failed": 2, "no output tokens": 1, "no usage in the answer": 1}
    assert trace.notes[0] == CLOSED


def test_requests_alone_are_estimated_and_marked(tmp_path: Path) -> None:
    path = file(tmp_path / "in", [request("a"), request("b", max_tokens=None), request("c", max_completion_tokens=9)])
    assert recognised_by(path) == ["openai_batch"]
    trace = both_ways(path)
    characters = len("user") + len(SECRET)
    assert [(row.input_tokens, row.output_tokens) for row in trace.rows] == [(-(-characters // 4), 256), (6, 9)]
    assert trace.dropped == {"no max_tokens to estimate the output from": 1}
    assert trace.notes[:2] == (
        CLOSED,
        "tokens of 2 rows are estimated: their text at 4 characters a token, outputs as long as they may be; "
        "the batch's output file has the counts",
    )


@pytest.mark.parametrize("answers_first", [True, False])
def test_both_files_count_each_request_once(tmp_path: Path, answers_first: bool) -> None:
    paths = [file(tmp_path / "out", ANSWERS), file(tmp_path / "in", REQUESTS)]
    header = import_trace(paths if answers_first else paths[::-1], tmp_path / "trace")
    assert (header.rows_read, header.rows_kept) == (len(REQUESTS), 2)
    assert header.dropped == {"failed": 2, "no answer": 1, "no output tokens": 1, "no usage in the answer": 1}
    assert not any("estimated" in note for note in header.notes)


def test_text_is_never_kept(tmp_path: Path) -> None:
    for name, rows in (("in", REQUESTS), ("out", ANSWERS)):
        import_trace([file(tmp_path / name, rows)], tmp_path / "trace")
        assert "words" not in (tmp_path / "trace").read_text()
        (tmp_path / "trace").unlink()


def test_a_first_row_longer_than_what_is_looked_at(tmp_path: Path) -> None:
    path = file(tmp_path / "in", [request("a", messages=[{"role": "user", "content": "x" * 200_000}])])
    assert read_trace(path).rows[0].input_tokens == 50_001


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            answer("a", {"prompt_tokens": "9"}),
            "FILE:1: response.body.usage.prompt_tokens: '9': should be a whole number",
        ),
        (answer("a", {"prompt_tokens": -1}), "FILE:1: response.body.usage.prompt_tokens: -1: should be a whole"),
        (answer("a", {}, response="ok"), "FILE:1: response: 'ok': should be an object with status_code and body"),
        (answer("", {}), "FILE:1: custom_id: '': should be an id of at most 200 characters"),
        (request("a", max_tokens="9"), "FILE:1: body.max_tokens: '9': should be a whole number of tokens"),
        (request("a") | {"body": None}, "FILE:1: body: None: should be the body of a request"),
        (request("a", model=SECRET * 20), "FILE:1: body.model: 'the words"),
    ],
)
def test_a_malformed_row(tmp_path: Path, row: dict[str, Any], told: str) -> None:
    assert refused(file(tmp_path / "t", [row])).startswith(told)


def test_an_empty_file_among_several(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no: empty; should be a trace"):
        import_trace([file(tmp_path / "in", REQUESTS), write(tmp_path / "no", "")], tmp_path / "trace")
