"""Logs by --map, and of gateways that are known by their keys: times, units, what is dropped, what is estimated."""

import json
from pathlib import Path

import pytest

from loadgen.cli.main import main
from loadgen.errors import UserError
from loadgen.records import Trace
from loadgen.traces.convert import import_trace
from loadgen.traces.read import read_trace

MAP = "t=when,in=p,out=c"
SPEND = """id,startTime,endTime,model,prompt_tokens,completion_tokens,cache_hit,session_id,status,messages
r1,2026-11-30 12:00:00.123,2026-11-30 12:00:04.900,m,1532,210,False,s1,success,
r2,2026-11-30 12:00:01.000,2026-11-30 12:00:01.001,m,1532,210,True,,success,tell nobody
r3,2026-11-30 12:00:02,2026-11-30 12:00:03,m,12,0,False,,failure,
r4,2026-11-30 12:00:09.900000,2026-11-30 12:00:10,m,1800,20,,s1,,
r5,2026-11-30 12:00:10,2026-11-30 12:00:11,m,,,False,,success,
"""
PAYLOAD = [
    {"id": "a", "trace_id": "t", "status": "success", "prompt_tokens": 9, "completion_tokens": 3, "model": "m",
     "startTime": 1764504000.25, "endTime": 1764504001.0, "cache_hit": None, "messages": [{"content": "tell nobody"}]},
    {"id": "b", "trace_id": "t", "status": "success", "prompt_tokens": 19, "completion_tokens": 3, "model": "m",
     "startTime": 1764504003.0, "endTime": 1764504004.0, "cache_hit": False},
    {"id": "c", "trace_id": "t", "status": "success", "prompt_tokens": 19, "completion_tokens": 3, "model": "m",
     "startTime": 1764504005.0, "endTime": 1764504005.0, "cache_hit": True},
]  # fmt: skip
LANGFUSE = [
    {"id": "o1", "trace_id": "t1", "type": "GENERATION", "start_time": "2026-11-30 12:00:00.123000",
     "end_time": "2026-11-30 12:00:02.000000", "session_id": "s1", "input": "tell nobody",
     "usage_details": {"input": 500, "input_cached_tokens": 1032, "output": 200, "output_reasoning": 10}},
    {"id": "o2", "trace_id": "t1", "type": "SPAN", "start_time": "2026-11-30 12:00:00", "usage_details": {}},
    {"id": "o3", "trace_id": "t1", "type": "GENERATION", "start_time": "2026-11-30 12:00:05", "usage_details": {}},
    {"id": "o4", "trace_id": "t1", "type": "GENERATION", "level": "ERROR", "start_time": "2026-11-30 12:00:05",
     "usage_details": {"input": 5, "output": 5}},
]  # fmt: skip
CLOUDFLARE = {
    "success": True,
    "result": [
        {"id": "1", "created_at": "2026-11-30T12:00:00Z", "model": "m", "duration": 2500, "success": True,
         "cached": False, "tokens_in": 30, "tokens_out": 7},
        {"id": "2", "created_at": "2026-11-30T12:00:01Z", "model": "m", "duration": 5, "success": True,
         "cached": True, "tokens_in": 30, "tokens_out": 7},
        {"id": "3", "created_at": "2026-11-30T12:00:02Z", "model": "m", "duration": 5, "success": False,
         "cached": False, "tokens_in": 30, "tokens_out": 0},
    ],
}  # fmt: skip
NGINX = [
    {"time_iso8601": "2026-11-30T12:00:04+00:00", "msec": "1764504004.500", "request_uri": "/v1/chat/completions",
     "status": 200, "request_length": 6400, "bytes_sent": 4600, "request_time": 4.5},
    {"msec": "1764504003.000", "request_uri": "/v1/models", "status": 200, "request_length": 300, "bytes_sent": 900},
    {"msec": "1764504003.000", "request_uri": "/v1/completions", "status": 502, "request_length": 300, "bytes_sent": 9},
    {"msec": "1764504003.000", "request_uri": "/v1/completions", "status": 200, "request_length": 300, "bytes_sent": 9,
     "request_time": "1.000"},
]  # fmt: skip


def lines(records: list[dict[str, object]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def read(folder: Path, text: str, **options: str) -> Trace:
    path = folder / "log"
    path.write_text(text)
    return read_trace(path, "generic" if "map" in options else "auto", options)


def times(trace: Trace) -> list[float]:
    return [row.at_s for row in trace.rows]


def refused(folder: Path, text: str, **options: str) -> str:
    with pytest.raises(UserError) as caught:
        read(folder, text, **options)
    (line,) = caught.value.complaints
    return line.replace(str(folder / "log"), "FILE")


@pytest.mark.parametrize(
    ("first", "second", "after_s", "told"),
    [
        ("2026-11-30 12:00:00", "2026-11-30 12:00:01.5", 1.5, None),
        ("2026-11-30T12:00:00Z", "2026-11-30T14:00:01,25+02:00", 1.25, None),
        ("1764504000", "1764504002", 2, "times were read as s since 1970"),
        ("1764504000.123456", "1764504000.123457", 1e-6, "times were read as s since 1970"),
        ("1764504000123", "1764504000124", 0.001, "times were read as ms since 1970"),
        ("1764504000123456", "1764504000123457", 1e-6, "times were read as us since 1970"),
        ("1764504000123456789", "1764504000123456790", 1e-9, "times were read as ns since 1970"),
        ("0", "12.5", 12.5, "times were read as s since the log's start"),
        ("5", "400000000", 399_999_995, "times were read as s since the log's start"),
    ],
)
def test_times_of_every_kind(tmp_path: Path, first: str, second: str, after_s: float, told: str | None) -> None:
    trace = read(tmp_path, f'when,p,c\n"{first}",5,6\n"{second}",7.0,8\n', map=MAP)
    assert times(trace) == [0, pytest.approx(after_s, rel=1e-9)]
    assert trace.notes == ((told,) if told else ())


def test_the_unit_of_relative_times_can_be_said_and_is_guarded(tmp_path: Path) -> None:
    text = "when,p,c\n" + "".join(f"{80 * number},5,6\n" for number in range(200))
    path, out, micro = tmp_path / "log", tmp_path / "out", {"map": MAP, "unit": "us"}
    path.write_text(text)
    assert import_trace([path], out, format="generic", options={"map": MAP}, time_unit="ms").span_s == 15.92
    assert import_trace([path], out, format="generic", options=micro, force_units=True).span_s == 0.01592
    fine = "when,p,c\n" + "".join(f"{number / 1e5},5,6\n" for number in range(200))
    path.write_text(fine)
    with pytest.raises(UserError, match="its times may need --time-unit"):
        import_trace([path], out, format="generic", options={"map": MAP})


def test_dotted_keys_lead_into_objects_and_text_is_left_out(tmp_path: Path) -> None:
    record = {
        "req": {"at": 3, "messages": "tell nobody"},
        "usage": {"in": "70", "out": 9, "cached": 64},
        "a.b": "x",
        "who": 7,
    }
    options = {"map": "t=req.at,in=usage.in,out=usage.out,cached=usage.cached,class=a.b,session=who"}
    (row,) = read(tmp_path, lines([record]), **options).rows
    assert (row.input_tokens, row.output_tokens, row.cached_tokens, row.kind, row.session) == (70, 9, 64, "x", "7")
    for text in (json.dumps([record]), json.dumps({"data": [record]}, indent=1), "\n" + json.dumps([record], indent=1)):
        assert read(tmp_path, text, **options).rows == (row,)


def test_sessions_with_ends_become_chains_fans_and_joins(tmp_path: Path) -> None:
    rows = ["s,0,10,a", "s,12,15,b", "s,12.5,19,c", "s,20,21,d", "s,20,30,e", "t,5,6,x", "t,5.5,7,y", "t,9,10,z"]
    text = "session,begin,stop,name,p,c\n" + "".join(f"{row},5,6\n" for row in rows)
    trace = read(tmp_path, text, map="t=begin,in=p,out=c,session=session,end=stop,id=name")
    found = {row.id: (row.session, row.after, row.think_s) for row in trace.rows}
    assert found == {
        "a": ("s", (), None),
        "b": ("s", ("a",), 2.0),
        "c": ("s", ("a",), 2.5),
        "d": ("s", ("b", "c"), 1.0),
        "e": ("s", ("b", "c"), 1.0),
        "x": ("t", (), None),
        "y": (None, (), None),
        "z": ("t", ("x", "y"), 2.0),
    }


def test_rows_without_counts_are_dropped_and_backward_ends_told(tmp_path: Path) -> None:
    text = "when,p,c,stop\n0,5,6,1\n1,,6,2\n2,nan,6,3\n3,7.0,NULL,4\n4,8,9,3\n5,0,9,6\n"
    trace = read(tmp_path, text, map=f"{MAP},end=stop")
    assert trace.dropped == {"no token counts": 3, "no input tokens": 1}
    assert [row.duration_s for row in trace.rows] == [1, None]
    assert "1 rows end before they begin: their duration is left out" in trace.notes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("when,p,x\n0,5,6\n", "FILE:2: c: not there; should be one of when, p, x"),
        ("when,p,c\n0,5.5,6\n", "FILE:2: p: '5.5': should be a whole number of tokens"),
        ("when,p,c\n0,-5,6\n", "FILE:2: p: '-5': should be a whole number"),
        ("when,p,c\n0,Infinity,6\n", "FILE:2: p: 'Infinity': should be a whole number"),
        ("when,p,c\n,5,6\n", "FILE:2: when: missing"),
        ("when,p,c\nnoon,5,6\n", "FILE:2: when: 'noon': should be a date, or a number"),
        (
            "when,p,c\n2026-13-01 00:00:00,5,6\n",
            "FILE:2: when: '2026-13-01 00:00:00': should be a date of the calendar",
        ),
        ("when,p,c\n2026-11-01 00:00:00,5,6\n17,5,6\n", "FILE:3: when: '17': should be a time such as"),
        ("when,p,c\n17,5,6\n2026-11-01 00:00:00,5,6\n", "FILE:3: when: '2026-11-01 00:00:00': should be a number of s"),
        ("when,p,c\n17,5\n", "FILE:2: 2 columns: should be 3, as in the header"),
        ('{"when": 1, "p": 5, "c": 6}\n[1]\n', "FILE:2: '[1]': should be a JSON object"),
        ('{"when": 1, "p": 5, "c": 6}\n{"when": 2, "p"', "FILE:2: '{"),
        ('{"when": 1, "p": [5], "c": 6}\n', "FILE:1: p: [5]: should be a whole number of tokens"),
        ('{"when": 1, "p": true, "c": 6}\n', "FILE:1: p: True: should be a whole number of tokens"),
        ('[{"when": 1, "p": 5, "c": 6}, 7]', "FILE:2: entry: 7: should be a JSON object"),
        ('[{"when": 1, "p": 5, "c": 6}', "FILE: not JSON"),
        ('{\n "rows": []}', "FILE: a JSON object without a list under data"),
        ("", "FILE: empty"),
    ],
)
def test_malformed_logs(tmp_path: Path, text: str, told: str) -> None:
    assert refused(tmp_path, text, map=MAP).startswith(told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("t=a,in=b", "--map: no out; should be t=KEY"),
        ("t=a,in=b,out=c,out=d", "--map: out: given twice"),
        ("t=a,in=b,out=c,class=d,kind=e", "--map: kind: given twice"),
        ("t=a,in=b,out=c,tokens=d", "--map: 'tokens=d': should be PART=KEY, PART one of t, in, out, session"),
        ("t", "--map: 't': should be PART=KEY"),
    ],
)
def test_maps_that_are_none(tmp_path: Path, text: str, told: str) -> None:
    assert refused(tmp_path, "a,b,c\n1,2,3\n", map=text).startswith(told)


def test_a_map_on_the_command_line_chooses_the_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.csv").write_text("when,p,c\n0,5,6\n")
    for words, code, told in (
        ([], 2, "or say with --map which key is what"),
        (["--map", MAP], 0, "own.csv (generic): 1 rows read = 1 kept"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["trace", "import", "own.csv", *words])
        assert ended.value.code == code
        captured = capsys.readouterr()
        assert told in captured.out + captured.err


def test_litellms_spend_logs(tmp_path: Path) -> None:
    trace = read(tmp_path, SPEND)
    assert trace.format == "litellm"
    assert trace.dropped == {"hit in the gateway's cache": 1, "failure": 1, "no token counts": 1}
    first, second = trace.rows
    assert (first.input_tokens, first.output_tokens, first.duration_s, first.kind) == (1532, 210, 4.777, "m")
    assert (second.at_s, second.session, second.after, second.think_s) == (9.777, "s1", (first.id,), 5.0)


def test_litellms_payloads_have_floats(tmp_path: Path) -> None:
    for text in (lines(PAYLOAD), json.dumps(PAYLOAD, indent=2)):
        trace = read(tmp_path, text)
        assert (trace.format, trace.dropped) == ("litellm", {"hit in the gateway's cache": 1})
        assert times(trace) == [0, pytest.approx(2.75)]
        assert trace.rows[1].think_s == pytest.approx(2)
        assert trace.notes == ("times were read as s since 1970",)


def test_langfuses_usage_types_add_up(tmp_path: Path) -> None:
    trace = read(tmp_path, lines(LANGFUSE))
    assert (trace.format, trace.dropped) == ("langfuse", {"not a generation": 1, "no token counts": 1, "failure": 1})
    (row,) = trace.rows
    assert (row.input_tokens, row.output_tokens, row.session, row.id) == (1532, 210, "s1", "o1")
    csv = 'id,type,startTime,usageDetails\no1,GENERATION,2026-11-30 12:00:00.1,"{""input"": 7, ""output"": 8}"\n'
    (row,) = read(tmp_path, csv).rows
    assert (row.input_tokens, row.output_tokens) == (7, 8)
    assert refused(tmp_path, csv.replace('{""', '""')).startswith("FILE:2: usageDetails: ")
    broken = lines(LANGFUSE).replace('"input": 500', '"input": "many"')
    assert refused(tmp_path, broken).startswith("FILE:1: usage_details.input: 'many': should be a whole number")


def test_cloudflares_durations_are_milliseconds(tmp_path: Path) -> None:
    for text in (json.dumps(CLOUDFLARE), json.dumps(CLOUDFLARE, indent=1), lines(CLOUDFLARE["result"])):  # type: ignore[arg-type]
        trace = read(tmp_path, text)
        assert (trace.format, trace.dropped) == ("cloudflare", {"hit in the gateway's cache": 1, "failure": 1})
        (row,) = trace.rows
        assert (row.input_tokens, row.output_tokens, row.duration_s) == (30, 7, 2.5)
        assert trace.notes == ("created_at is taken as the request's arrival",)


def test_nginxs_bytes_are_marked_as_estimates(tmp_path: Path) -> None:
    trace = read(tmp_path, lines(NGINX))
    assert (trace.format, trace.dropped) == ("nginx", {"not a request to an LLM": 1, "failure": 1})
    first, second = trace.rows
    assert (first.input_tokens, first.output_tokens, first.kind) == (1500, 20, "estimated")
    assert (second.at_s, second.input_tokens, second.output_tokens) == (2.0, 1, 1), "a line is written at the end"
    assert trace.notes[0].startswith("tokens are estimated from bytes: 4 per token of a prompt, 230 per token")
    options = {"bytes_per_token": "5", "stream": "no", "header_bytes": "0"}
    assert [row.input_tokens for row in read(tmp_path, lines(NGINX), **options).rows] == [1280, 60]
    assert [row.output_tokens for row in read(tmp_path, lines(NGINX), **options).rows] == [920, 2]
    assert refused(tmp_path, lines(NGINX), stream="maybe") == "--option stream: 'maybe': should be one of yes, no"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SPEND.replace("12:00:00.123", "noon"), "FILE:2: startTime: '2026-11-30 noon': should be a time such as"),
        (SPEND.replace("1532,210,False", "15x,210,False"), "FILE:2: prompt_tokens: '15x': should be a whole number"),
        (lines(PAYLOAD).replace("1764504000.25", '"x"'), "FILE:1: startTime: 'x': should be a date, or a number"),
        (lines(LANGFUSE).replace('"s1"', '["s1"]'), "FILE:1: session_id: ['s1']: should be an id"),
        (json.dumps(CLOUDFLARE).replace("2500", "-1"), "FILE:1: duration: -1: should be a duration"),
        (json.dumps(CLOUDFLARE).replace('"tokens_in": 30', '"tokens_in": "a"'), "FILE:1: tokens_in: 'a': should be"),
        (lines(NGINX).replace("6400", "-6400"), "FILE:1: request_length: -6400: should be a whole number"),
    ],
)
def test_malformed_rows_of_gateways(tmp_path: Path, text: str, told: str) -> None:
    assert refused(tmp_path, text).startswith(told)


@pytest.mark.parametrize("text", [SPEND, lines(PAYLOAD), lines(LANGFUSE), json.dumps(CLOUDFLARE), lines(NGINX)])
def test_no_text_of_a_prompt_is_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(text)
    import_trace([tmp_path / "log"], tmp_path / "out")
    written = (tmp_path / "out").read_text()
    assert "tell nobody" not in written
    assert '"in":' in written
