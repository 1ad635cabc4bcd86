"""Planted faults of answers and streams as an ASGI application: which messages they send."""

import asyncio
import gzip
import json

import pytest
from emulator.fault_cases import CASES, Case
from fakes.streaming_app import METRICS, App, asked_in_memory

from loadgen.emulator.faults import parse
from loadgen.emulator.rewrites import DONE

ABOVE_HTTP = [case for case in CASES if case.fault.where in ("response", "stream")]
SILENT = ("no-answer", "stall")


def messages(switch, tokens=6, path="/v1/completions"):
    app = parse([switch]).wrapped(App(gap_s=0.0))
    return asyncio.run(asked_in_memory(app, {"stream": True, "max_tokens": tokens, "prompt": "a b"}, path))


def bodies(switch, **options):
    return [m["body"] for m in messages(switch, **options) if m["type"] == "http.response.body" and m["body"]]


def decoded(raws):
    return [json.loads(raw.removeprefix(b"data: ")) for raw in raws if raw.startswith(b"data: {")]


def texts(raws):
    return [
        choice.get("text") or choice.get("delta", {}).get("content")
        for body in decoded(raws)
        for choice in body.get("choices", ())
    ]


@pytest.mark.parametrize("case", ABOVE_HTTP, ids=lambda case: case.switch)
def test_an_answer_is_a_head_and_a_body_that_ends(case: Case):
    kinds = [message["type"] for message in messages(case.switch)]
    if case.fault.name == "no-answer":
        assert kinds == []
        return
    assert kinds[0] == "http.response.start"
    assert set(kinds[1:]) == {"http.response.body"}
    more = [message.get("more_body", False) for message in messages(case.switch)[1:]]
    assert more == [True] * len(more) if case.fault.name == "stall" else more == [True] * (len(more) - 1) + [False]


@pytest.mark.parametrize(
    "case", [c for c in ABOVE_HTTP if c.fault.name not in (*SILENT, "gzip", "status")], ids=lambda case: case.switch
)
def test_every_fault_changes_what_a_client_gets(case: Case):
    good = bodies("status@1000")
    head = messages(case.switch)[0]["headers"]
    assert bodies(case.switch) != good or head != messages("status@1000")[0]["headers"]


def test_a_busy_server_says_when_to_come_again():
    (head, body) = messages("status=429")
    assert (head["status"], dict(head["headers"])[b"retry-after"]) == (429, b"1")
    assert json.loads(body["body"])["error"]["code"] == 429
    assert b"retry-after" not in dict(messages("status=502")[0]["headers"])


def test_gzip_is_gzip():
    head = messages("gzip")[0]
    assert dict(head["headers"])[b"content-encoding"] == b"gzip"
    assert gzip.decompress(b"".join(bodies("gzip"))).endswith(DONE)


def test_a_stall_sends_what_it_was_told_and_nothing_more():
    assert texts(bodies("stall=3")) == [" thé"] * 3


def test_tokens_are_joined_and_none_is_lost():
    assert texts(bodies("tokens-per-event=4", tokens=6)) == [" thé" * 4, " thé" * 2]
    assert texts(bodies("tokens-per-event=4", tokens=6, path="/v1/chat/completions")) == [" thé" * 4, " thé" * 2]


def test_a_short_output_says_that_it_stopped_and_counts_itself():
    short = decoded(bodies("short-output=2"))
    assert [choice["finish_reason"] for body in short for choice in body["choices"]] == [None, "stop"]
    assert short[-1]["usage"]["completion_tokens"] == 2


def test_where_usage_is():
    def places(switch):
        return [(bool(body["choices"]), body.get("usage", "none")) for body in decoded(bodies(switch, tokens=2))]

    usage = {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    assert places("usage-missing") == [(True, "none")] * 2
    assert places("usage-null") == [(True, None)] * 2 + [(False, None)]
    assert places("usage-zero") == [(True, None)] * 2 + [(False, dict.fromkeys(usage, 0))]
    assert places("usage-in-last-event") == [(True, "none")] * 2 + [(False, usage)]
    assert places("usage-with-finish") == [(True, None), (True, usage)]


def test_metrics_are_spoilt_as_told():
    def metrics(switch):
        head, body = messages(switch, path="/metrics")
        return head["status"], body["body"].decode()

    assert metrics("crlf") == (200, METRICS)
    assert metrics("metrics-missing")[0] == 404
    assert metrics("metrics-html")[1].startswith("<html>")
    assert metrics("metrics-renamed") == (200, METRICS.replace("vllm:", "mine:"))
    assert metrics("metrics-slow=0.01") == (200, METRICS)


def test_a_request_without_json_goes_to_the_engine():
    reached = []

    async def engine(scope, receive, send):
        reached.append((await receive())["body"])
        reached.append((await receive())["type"])

    app = parse(["status"]).wrapped(engine)
    scope = {"type": "http", "path": "/v1/completions", "method": "POST", "headers": []}
    inbox = [
        {"type": "http.request", "body": b"{no ", "more_body": True},
        {"type": "http.request", "body": b"json", "more_body": False},
        {"type": "http.disconnect"},
    ]

    async def receive():
        return inbox.pop(0)

    asyncio.run(app(scope, receive, None))
    assert reached == [b"{no json", "http.disconnect"]
