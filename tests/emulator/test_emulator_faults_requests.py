"""Each planted fault over a real socket: how the request ends, what is kept of it, whether its instants are sane."""

import asyncio
import json

import pytest
from emulator.fault_cases import LONG_S, OF_REQUESTS, SHORT_S, TOKENS, Case
from fakes.emulated import front
from fakes.streaming_app import GAP_S, App, serving

from loadgen.clock import Clock
from loadgen.drive.client import Client
from loadgen.drive.transport import Timeouts
from loadgen.emulator.faults import parse
from loadgen.records import Request, Run, Sample

USAGE = {"stream_options": {"include_usage": True}}
BODY = json.dumps({"stream": True, "max_tokens": TOKENS, "prompt": "a b c", "ignore_eos": True, **USAGE}).encode()
REQUEST = Request(index=0, runs=(Run("a", 3),), output_tokens=TOKENS)


def client_of(url, transport="lean", endpoint="completions", read_s=LONG_S):
    timeouts = Timeouts(connect_s=2.0, read_s=read_s)
    return Client(base_url=url, endpoint=endpoint, clock=Clock(), transport=transport, timeouts=timeouts)


async def sending(switches, times=1, *, app=None, emulated=False, **options) -> list[Sample]:
    server = front(switches) if emulated else serving(app or App(), parse(switches))
    async with server as url, client_of(url, **options) as client:
        return [await client.send(BODY, request=REQUEST, stage="s") for _ in range(times)]


def sent(switches, times=1, **options):
    return asyncio.run(sending(switches, times, **options))


def together(*sendings):
    """All at once: what they wait for, they wait for together."""

    async def main():
        return await asyncio.gather(*sendings)

    return asyncio.run(main())


def kind_of(sample):
    return "ok" if sample.failure is None else sample.failure.kind


def assert_sane(sample):
    instants = [sample.sent_s, *([] if sample.first_byte_s is None else [sample.first_byte_s]), *sample.events_s]
    assert instants == sorted(instants)
    assert instants[-1] <= sample.end_s
    assert sample.e2e_s < LONG_S


@pytest.fixture(scope="module", params=["lean", "httpx", "emulator"])
def seen(request):
    """By switch: the samples of a request on a fresh connection and of the next ones."""
    emulated = request.param == "emulator"
    options = {"emulated": True} if emulated else {"transport": request.param}
    found = together(*(sending([case.switch], 3, read_s=case.read_s, **options) for case in OF_REQUESTS))
    return request.param, dict(zip([case.switch for case in OF_REQUESTS], found, strict=True))


@pytest.mark.parametrize("case", OF_REQUESTS, ids=lambda case: case.switch)
def test_a_request_ends_as_documented(case: Case, seen):
    transport, samples = seen
    # the request that makes a server refuse has its connection reset
    for sample in samples[case.switch][1 if case.fault.name == "refuse" else 0 :]:
        assert kind_of(sample) == case.ends, sample
        assert_sane(sample)
        if sample.failure is not None:
            assert transport == "httpx" or case.says in sample.failure.detail
            assert " " in sample.failure.detail  # words, not the name of an exception
            assert len(sample.failure.detail) <= 200


GOOD = sent([])[0]


def test_a_good_request_is_good():
    assert kind_of(GOOD) == "ok"
    assert (len(GOOD.events_s), GOOD.output_tokens, GOOD.prompt_tokens, GOOD.finish_reason) == (12, 12, 3, "length")


@pytest.mark.parametrize("case", [c for c in OF_REQUESTS if c.ends == "ok"], ids=lambda case: case.switch)
@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_what_does_no_harm_loses_nothing(case: Case, endpoint):
    (sample,) = sent([case.switch], endpoint=endpoint)
    assert kind_of(sample) == "ok"
    assert sample.text_digest == GOOD.text_digest
    assert (sample.status, sample.finish_reason) == (200, "length")
    assert len(sample.events_s) == (3 if case.switch == "tokens-per-event" else TOKENS)
    counts = (sample.prompt_tokens, sample.output_tokens)
    unknown = case.switch in ("usage-missing", "usage-null", "usage-zero")
    assert counts == ((None, None) if unknown else (3, TOKENS))


@pytest.mark.parametrize(
    ("switch", "events"),
    [
        ("stall=5", 5),
        ("reset-mid-stream=5", 5),
        ("truncated-stream=5", 5),
        ("garbage-bytes=5", 5),
        ("error-in-stream", 1),
        ("error-in-stream=openai", 1),
        ("error-in-stream=flat", 1),
        ("garbage-event", 11),
        ("short-output=5", 5),
        ("no-done", 12),
        ("status", 0),
        ("no-answer", 0),
    ],
)
def test_what_came_before_the_failure_is_kept(switch, events):
    (sample,) = sent([switch], read_s=SHORT_S if switch in ("stall=5", "no-answer") else LONG_S)
    assert sample.failure is not None
    assert len(sample.events_s) == events


@pytest.mark.parametrize("switch", ["role-only-first", "empty-first"])
def test_an_event_without_text_is_not_the_first_token(switch):
    (sample,) = sent([switch], app=App(gap_s=0.05))
    assert sample.first_byte_s is not None
    assert sample.ttft_s is not None
    assert sample.first_byte_s - sample.sent_s < 0.05 <= sample.ttft_s


def test_slow_headers_are_part_of_ttft_and_their_first_byte_is_not():
    (sample,) = sent(["slow-headers=0.1"])
    assert sample.first_byte_s is not None
    assert sample.ttft_s is not None
    assert sample.first_byte_s - sample.sent_s < 0.1 <= sample.ttft_s


def test_events_of_one_write_arrive_together():
    (sample,) = sent(["events-per-write=4"])
    gaps = [after - before for before, after in zip(sample.events_s, sample.events_s[1:], strict=False)]
    assert [gap < GAP_S for gap in gaps] == [True, True, True, False] * 2 + [True] * 3


def test_what_a_busy_server_asks_for_is_kept():
    for code, wanted in ((429, 1.0), (503, 1.0), (500, None)):
        (sample,) = sent([f"status={code}"])
        assert (sample.status, sample.retry_after_s) == (code, wanted)


@pytest.mark.parametrize("transport", ["lean", "httpx"])
def test_a_kept_connection_that_is_lost_before_any_answer_is_tried_once_more(transport):
    first, second, third = sent(["reset-before-response@2"], 3, transport=transport)
    assert [kind_of(sample) for sample in (first, second, third)] == ["ok", "ok", "ok"]
    assert [sample.retries for sample in (first, second, third)] == [0, 1, 1]


def test_after_a_failure_the_next_request_is_as_good_as_any():
    lasting = ("refuse", "accept-and-close", "reset-before-response")
    cases = [case for case in OF_REQUESTS if case.ends != "ok" and case.fault.name not in lasting]
    found = together(*(sending([f"{case.switch}@2"], 3, read_s=case.read_s) for case in cases))
    for case, (first, second, third) in zip(cases, found, strict=True):
        assert [kind_of(sample) for sample in (first, second, third)] == ["ok", case.ends, "ok"]
        assert third.text_digest == GOOD.text_digest
