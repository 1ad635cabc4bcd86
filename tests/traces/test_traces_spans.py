"""OTLP JSON, SGLang's request logs and vLLM's arrivals."""

import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.errors import UserError
from loadgen.records import Trace
from loadgen.traces.convert import import_trace
from loadgen.traces.read import read_trace

BEGAN_NS = 1_764_500_000_000_000_000


def attribute(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    return {"key": key, "value": {"stringValue": value}}


def span(id: str, begin_s: float, end_s: float, parent: str = "", trace: str = "5b8e", **of: Any) -> dict[str, Any]:
    names = {"i": "gen_ai.usage.input_tokens", "o": "gen_ai.usage.output_tokens", "c": "gen_ai.conversation.id"}
    names |= {"pi": "gen_ai.usage.prompt_tokens", "po": "gen_ai.usage.completion_tokens"}
    names |= {"op": "gen_ai.operation.name", "text": "gen_ai.input.messages", "model": "gen_ai.request.model"}
    names |= {"hit": "gen_ai.usage.cache_read.input_tokens"}
    return {
        "traceId": trace,
        "spanId": id,
        "parentSpanId": parent,
        "startTimeUnixNano": str(BEGAN_NS + round(begin_s * 1e9)),
        "endTimeUnixNano": str(BEGAN_NS + round(end_s * 1e9)),
        "attributes": [attribute(names[key], value) for key, value in of.items()],
    }


def batch(*spans: dict[str, Any]) -> str:
    return json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": list(spans)}]}]}) + "\n"


def read(folder: Path, text: str, format: str = "auto", **options: str) -> Trace:
    path = folder / "log"
    path.write_text(text)
    return read_trace(path, format, options)


def refused(folder: Path, text: str, **options: str) -> str:
    with pytest.raises(UserError) as caught:
        read(folder, text, **options)
    (line,) = caught.value.complaints
    return line.replace(str(folder), "FOLDER")


def test_spans_with_new_and_old_names_and_numbers_as_texts(tmp_path: Path) -> None:
    text = batch(
        span("new", 0, 2, i=1532, o=210, c="c1", model="m", hit=1024, text="tell nobody"),
        span("db", 0, 1),
    ) + batch(span("old", 5, 6, trace="77", pi=40, po=7))
    trace = read(tmp_path, text)
    assert (trace.format, trace.dropped) == ("otlp", {"span without tokens": 1})
    new, old = trace.rows
    assert (new.input_tokens, new.output_tokens, new.cached_tokens, new.kind) == (1532, 210, 1024, "m")
    assert (new.session, new.id, new.duration_s) == ("c1", "new", 2)
    assert (old.session, old.at_s, old.input_tokens, old.output_tokens) == ("77", 5, 40, 7)
    import_trace([tmp_path / "log"], tmp_path / "out")
    assert "tell nobody" not in (tmp_path / "out").read_text()


def test_a_session_is_joined_from_spans_that_come_in_the_order_of_their_ends(tmp_path: Path) -> None:
    text = batch(span("b", 3, 4, i=5, o=5), span("c", 3, 6, i=5, o=5)) + batch(span("d", 7, 9, i=5, o=5))
    text += batch(span("a", 0, 2, i=5, o=5))
    found = {row.id: (row.at_s, row.after, row.think_s) for row in read(tmp_path, text).rows}
    assert found == {"a": (0, (), None), "b": (3, ("a",), 1), "c": (3, ("a",), 1), "d": (7, ("b", "c"), 1)}


def test_a_parent_that_had_ended_is_followed(tmp_path: Path) -> None:
    text = batch(span("a", 0, 2, i=5, o=5), span("b", 1, 3, i=5, o=5, c="x"), span("k", 4, 6, parent="b", i=5, o=5))
    row = read(tmp_path, text).rows[2]
    assert (row.session, row.after, row.think_s) == ("5b8e", ("b",), 1)


def test_a_request_seen_twice_and_sums_of_agents_count_once(tmp_path: Path) -> None:
    text = batch(
        span("server", 0.1, 1.9, parent="client", pi=50, po=7),
        span("client", 0, 2, parent="agent", i=50, o=7, op="chat"),
        span("agent", 0, 9, i=50, o=7, op="invoke_agent"),
        span("client", 0, 2, parent="agent", i=50, o=7, op="chat"),
        {**span("bad", 3, 4, i=50, o=1), "status": {"code": 2}},
        span("half", 3, 4, i=50),
    )
    trace = read(tmp_path, text)
    assert [row.id for row in trace.rows] == ["client"]
    assert trace.dropped == {
        "within another request's span": 1,
        "span of an agent or a tool": 1,
        "span seen twice": 1,
        "failure": 1,
        "no token counts": 1,
    }
    assert trace.rows_read == 6


def test_one_document_over_several_lines(tmp_path: Path) -> None:
    text = json.dumps(json.loads(batch(span("a", 0, 2, i=5, o=5))), indent=2)
    assert read(tmp_path, text).rows_read == 1


GOOD = batch(span("a", 0, 2, i=5, o=6))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD.replace('"intValue": "5"', '"stringValue": "five"'), "input_tokens: 'five': should be a whole number"),
        (GOOD.replace(str(BEGAN_NS), "now"), "startTimeUnixNano: 'now': should be nanoseconds since 1970"),
        (GOOD.replace(str(BEGAN_NS), "9" * 30), "startTimeUnixNano: '9999"),
        (GOOD.replace(f'"{BEGAN_NS + 2 * 10**9}"', "3"), "endTimeUnixNano: 3: should be at or after"),
        (GOOD.replace('"spanId": "a"', '"spanId": null'), "spanId: missing"),
        (GOOD.replace('"traceId": "5b8e"', '"traceId": {}'), "traceId: {}: should be an id"),
        (GOOD.replace('"attributes": [', '"attributes": 7, "was": ['), "attributes: 7: should be a list"),
        (GOOD + GOOD[:-20], "FOLDER/log:2: '{"),
        (GOOD[:-20], "not JSON"),
        (GOOD.replace('"spans": [{', '"spans": [3, {'), "spans: 3: should be a list of objects"),
    ],
)
def test_malformed_spans(tmp_path: Path, text: str, told: str) -> None:
    assert told in refused(tmp_path, text)


def received(rid: str, second: float) -> dict[str, Any]:
    stamp = f"2026-11-30T12:00:{second:09.6f}"
    return {"timestamp": stamp, "event": "request.received", "rid": rid, "obj": {"text": "tell nobody"}}


def finished(rid: str, second: float, **meta: Any) -> dict[str, Any]:
    out = {"text": "tell nobody", "meta_info": meta}
    return {**received(rid, second), "event": "request.finished", "out": out}


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_sglangs_pairs(tmp_path: Path) -> None:
    usual = {"completion_tokens": 210, "cached_tokens": 1024, "e2e_latency": 4.8}
    text = lines(
        received("r1", 4.901233),
        received("r2", 5),
        received("r3", 6),
        received("r4", 6),
        finished("r2", 6.5, prompt_tokens=7, completion_tokens=3, e2e_latency=1.5),
        finished("r1", 9.7001, prompt_tokens=1532, finish_reason={"type": "stop"}, **usual),
        finished("r0", 9.8, prompt_tokens=9, **usual),
        finished("r3", 9.9, prompt_tokens=9, finish_reason={"type": "abort", "message": "tell nobody"}, **usual),
        {**received("r5", 10), "event": "request.finished", "out": None},
    )
    trace = read(tmp_path, text)
    assert (trace.format, trace.rows_read) == ("sglang", 6)
    assert trace.dropped == {"aborted": 1, "never finished": 1, "no token counts": 1}
    first, second, third = trace.rows
    assert (first.input_tokens, first.cached_tokens, first.duration_s) == (1532, 1024, 4.8)
    assert (second.at_s, second.input_tokens) == (pytest.approx(0.098767), 7), "arrival is the first line's"
    assert third.at_s == pytest.approx(0.098767)
    assert "1 requests began before the log: their arrival is their end less e2e_latency" in trace.notes
    import_trace([tmp_path / "log"], tmp_path / "out")
    assert "tell nobody" not in (tmp_path / "out").read_text()


def test_sglangs_exported_lines(tmp_path: Path) -> None:
    usual = {"request_parameters": '{"text": "tell nobody"}', "id": "q", "cached_tokens": 3, "e2e_latency": 2.0}
    text = lines(
        {**usual, "prompt_tokens": 50, "completion_tokens": 7, "request_received_ts": 1764504000.0},
        {**usual, "prompt_tokens": 60, "completion_tokens": 8, "request_finished_ts": 1764504005.0},
    )
    trace = read(tmp_path, text)
    assert trace.format == "sglang"
    assert [(row.at_s, row.input_tokens, row.cached_tokens) for row in trace.rows] == [(0, 50, 3), (3, 60, 3)]
    import_trace([tmp_path / "log"], tmp_path / "out")
    assert "tell nobody" not in (tmp_path / "out").read_text()


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"timestamp": "noon"}, "FOLDER/log:2: timestamp: 'noon': should be a time such as"),
        ({"timestamp": None}, "FOLDER/log:2: timestamp: None: should be a time"),
        ({"event": "request.paused"}, "FOLDER/log:2: event: 'request.paused': should be request.received or"),
        ({"out": {"meta_info": {"prompt_tokens": "x", "completion_tokens": 1}}}, "FOLDER/log:2: prompt_tokens: 'x'"),
        ({"out": {"meta_info": {"e2e_latency": -1}}}, "FOLDER/log:2: e2e_latency: -1: should be seconds"),
        (
            {"event": None, "request_parameters": "", "prompt_tokens": 5},
            "FOLDER/log:2: request_received_ts: None: should be given, or request_finished_ts and e2e_latency",
        ),
    ],
)
def test_malformed_lines_of_sglang(tmp_path: Path, record: dict[str, Any], told: str) -> None:
    text = lines(received("r", 1), finished("r", 2, prompt_tokens=1, completion_tokens=1) | record)
    assert refused(tmp_path, text).startswith(told)


START = "(APIServer pid=1) INFO 12-31 23:59:50 [api_server.py:100] Starting vLLM server on http://0.0.0.0:8000\n"
REQUEST = (
    "(APIServer pid=1) INFO {} [request_logger.py:65] Received request chatcmpl-9f: params: SamplingParams(n=1, "
    "temperature=0.0, max_tokens={}, min_tokens=0), lora_request: None.\n"
)
ANSWER = (
    "(APIServer pid=1) INFO {} [request_logger.py:108] Generated response chatcmpl-9f: output: 'tell nobody INFO "
    "01-01 00:00:00 [request_logger.py:65] Received request x: SamplingParams(max_tokens=3)', finish_reason: stop\n"
)
CANONICAL = '{"loadgen_trace": 1, "source": "x", "format": "y", "rows_read": 2, "rows_kept": 2}\n'
CANONICAL += '{"t": 0, "in": 100, "out": 10}\n{"t": 1, "in": 2000, "out": 90}\n'


@pytest.fixture
def lengths(tmp_path: Path) -> str:
    path = tmp_path / "lengths.jsonl"
    path.write_text(CANONICAL)
    return str(path)


def test_vllms_arrivals_over_new_year_with_lengths_from_a_trace(tmp_path: Path, lengths: str) -> None:
    coloured = REQUEST.format("01-01 00:00:02", 50).replace("INFO 01-01", "\x1b[32mINFO\x1b[0m \x1b[90m01-01")
    text = START + REQUEST.format("12-31 23:59:58", 512) + ANSWER.format("12-31 23:59:59") + "a banner\n"
    text += REQUEST.format("12-31 23:59:58", 512) + coloured + REQUEST.format("01-01 00:00:03", 50)
    trace = read(tmp_path, text, lengths=lengths)
    assert (trace.format, trace.time_quantum_s) == ("vllm-log", 1.0)
    assert [row.at_s for row in trace.rows] == [0, 0, 4, 5]
    assert sorted((row.input_tokens, row.output_tokens) for row in trace.rows[:2]) == [(100, 10), (2000, 90)]
    assert sorted((row.input_tokens, row.output_tokens) for row in trace.rows[2:]) == [(100, 10), (2000, 50)]
    assert {row.kind for row in trace.rows} == {"sampled"}
    assert "1 answers were cut at their request's max_tokens" in trace.notes
    import_trace([tmp_path / "log"], tmp_path / "out", options={"lengths": lengths})
    assert "tell nobody" not in (tmp_path / "out").read_text()


def test_vllms_arrivals_with_lengths_from_scrapes(tmp_path: Path) -> None:
    stems = ("vllm:request_prompt_tokens", "vllm:request_generation_tokens")
    after = "".join(f'{stem}_bucket{{le="10"}} 4\n{stem}_bucket{{le="+Inf"}} 4\n{stem}_sum 20\n' for stem in stems)
    (tmp_path / "before").write_text("vllm:num_requests_running 0\n")
    (tmp_path / "after").write_text(after)
    given = f"{tmp_path}/before,{tmp_path}/after"
    trace = read(tmp_path, REQUEST.format("11-30 13:01:22", 512), lengths=given, seconds="60")
    assert 1 <= trace.rows[0].input_tokens <= 10


def test_older_lines_and_a_29th_of_february(tmp_path: Path, lengths: str) -> None:
    old = "INFO 02-29 10:00:00 [logger.py:43] Received request cmpl-1: prompt: 'tell nobody', params: SamplingParams("
    old += "max_tokens=16), prompt_token_ids: [1, 2], lora_request: None.\n"
    assert read(tmp_path, old, lengths=lengths, year="2024").rows[0].output_tokens <= 16
    told = refused(tmp_path, old, lengths=lengths)
    assert told.startswith("FOLDER/log:1: time: '2025-02-29 10:00:00': should be a date of the calendar")
    assert "--option year=... names the first line's year" in told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "--option lengths: missing: vLLM's log has no lengths"),
        ("log", "FOLDER/log: should be a canonical trace or scrapes of /metrics, for --option lengths"),
        ("gone", "FOLDER/gone: cannot be read"),
        ("empty", "FOLDER/empty: no row; should hold lengths"),
    ],
)
def test_lengths_that_are_none(tmp_path: Path, given: str | None, told: str) -> None:
    (tmp_path / "empty").write_text(
        '{"loadgen_trace": 1, "source": "x", "format": "y", "rows_read": 0, "rows_kept": 0}\n'
    )
    options = {} if given is None else {"lengths": str(tmp_path / given)}
    assert refused(tmp_path, START + REQUEST.format("11-30 13:01:22", 512), **options).startswith(told)


def test_a_log_without_requests(tmp_path: Path, lengths: str) -> None:
    assert refused(tmp_path, START, lengths=lengths).startswith("FOLDER/log: no row to send")
