"""Switches of planted faults, and that every one that is asked for acts on the requests it should."""

import asyncio

import pytest
from fakes.streaming_app import App, asked_in_memory
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from loadgen.emulator.faults import FAULTS, parse
from loadgen.emulator.wire import WireProtocol
from loadgen.errors import UserError

ISSUE = """refuse reset-before-response reset-mid-stream stall slow-headers truncated-stream no-done garbage-bytes
error-in-stream status wrong-content-type gzip crlf comments byte-per-write events-per-write tokens-per-event
role-only-first empty-first reasoning-deltas tool-call-deltas usage-missing usage-null usage-zero usage-in-last-event
close-after-response metrics-missing metrics-slow metrics-renamed metrics-html process-dies hangs-at-shutdown
leaks-children"""


def test_every_promised_fault_is_there():
    assert set(ISSUE.split()) <= set(FAULTS)


def test_a_switch_has_a_name_a_value_and_a_turn():
    (planted,) = parse(["status=429@3"]).planted
    assert (planted.fault.name, planted.value, planted.every) == ("status", 429, 3)
    assert [number for number in range(1, 10) if planted.acts_on(number)] == [3, 6, 9]
    (planted,) = parse(["stall"]).planted
    assert (planted.value, planted.every) == (2, 1)
    assert [one.fault.name for one in parse(["stall,crlf", "gzip"]).planted] == ["stall", "crlf", "gzip"]
    assert parse(["leaks-children=5"]).planted[0].value == 5.0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("stal", "fault stal: no such fault; did you mean stall"),
        ("zzz", "fault zzz: no such fault; known: status, no-answer, "),
        ("", "fault : no such fault; known: "),
        ("status=200", "fault status=200: 200: should be a status from 400 to 599"),
        ("status=", "fault status=: : should be a status"),
        ("stall=0", "should be a whole number of events, from 1"),
        ("slow-headers=nan", "should be seconds, from 0"),
        ("slow-headers=-1", "should be seconds, from 0"),
        ("error-in-stream=x", "should be vllm, openai or flat"),
        ("wrong-content-type=html", "should be a content type"),
        ("gzip=1", "fault gzip=1: gzip takes no value"),
        ("stall@0", "fault stall@0: @0: should be a whole number from 1"),
        ("stall@x", "@x: should be a whole number from 1"),
        ("stall@", "@: should be a whole number from 1"),
        ("leaks-children@2", "leaks-children has nothing to do with requests; leave out @2"),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(text, complaint):
    with pytest.raises(UserError) as error:
        parse([text])
    assert complaint in str(error.value)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(UserError) as error:
        parse(["stal", "crlf", "gzip=1"])
    assert len(error.value.complaints) == 2


def test_without_faults_nothing_stands_between_server_and_engine():
    app, faults = App(), parse([])
    assert faults.wrapped(app) is app
    assert faults.protocol() is HttpToolsProtocol
    assert parse(["leaks-children"]).wrapped(app) is app
    assert parse(["crlf"]).protocol() is HttpToolsProtocol
    assert issubclass(parse(["refuse"]).protocol(), WireProtocol)
    assert parse(["refuse"]).protocol().door is not parse(["refuse"]).protocol().door


def statuses(app, *bodies, path="/v1/completions"):
    async def main():
        return [(await asked_in_memory(app, body, path))[0]["status"] for body in bodies]

    return asyncio.run(main())


def test_only_streams_are_spoilt_and_counted_whichever_their_endpoint():
    app = parse(["status=503@2"]).wrapped(App())
    stream, plain = {"stream": True, "max_tokens": 2}, {"max_tokens": 1}
    assert statuses(app, stream, plain, plain, stream, stream) == [200, 200, 200, 503, 200]
    assert statuses(app, stream, path="/v1/chat/completions") == [503]
    assert statuses(app, {}, path="/v1/models") == [200]


def test_several_faults_at_once_and_those_of_metrics_by_their_own_count():
    faulty = parse(["status=500@2", "status=404@3", "metrics-missing@2"])
    app = faulty.wrapped(App())
    assert statuses(app, *[{"stream": True, "max_tokens": 1}] * 6) == [200, 500, 404, 500, 200, 404]
    assert statuses(app, *[{}] * 4, path="/metrics") == [200, 404, 200, 404]
