"""One request in virtual time: instants exact, every ending a sample with its failure named."""

import asyncio
import gc
from typing import Any

import httpx
import pytest
from fakes import virtual
from fakes.streams import DONE, END, HEAD, chunk, delta, event, paced, response, token, usage

from loadgen.clock import Clock
from loadgen.drive.client import Client
from loadgen.drive.exchange import EXCERPT_BYTES, Exchange
from loadgen.drive.failures import Expects, retry_after_s, secrets_of
from loadgen.drive.transport import Timeouts
from loadgen.errors import UserError
from loadgen.records import Request, Run, Sample

BODY = b'{"prompt": [1, 2]}'
REQUEST = Request(index=3, runs=(Run("a", 2), Run("b", 2)), output_tokens=3)
SECRET = "sk-topsecret123"


def sent(
    *scripts: virtual.Script, times: int = 1, origin: float = 0.0, server: virtual.Server | None = None, **options: Any
) -> list[Sample]:
    """The samples of `times` requests, one after the other, to a server that answers with `scripts` in turn."""
    served = server or virtual.Server(lambda n, _: scripts[min(n, len(scripts) - 1)])

    async def main(loop: virtual.VirtualLoop) -> list[Sample]:
        loop.server = served
        clock = Clock(loop.time, origin)
        options.setdefault("headers", {"Authorization": f"Bearer {SECRET}"})
        async with Client(base_url="http://srv:8000/v1", endpoint="completions", clock=clock, **options) as client:
            samples = [await client.send(BODY, request=REQUEST, stage="s") for _ in range(times)]
            assert client.in_flight == 0
            return samples

    return virtual.run(main)


def failed(*sends: tuple[float, bytes], then: str = "close", **options: Any) -> tuple[str, str]:
    """Kind and detail of the failure of a request that is answered so."""
    (sample,) = sent(virtual.Script(sends, then), **options)
    assert sample.failure is not None
    assert SECRET not in repr(sample)
    return sample.failure.kind, sample.failure.detail


def test_instants_are_exact() -> None:
    server = virtual.Server(lambda *_: virtual.Script(paced(0.5, 0.02, 3)), connect_s=0.25)
    (sample,) = sent(server=server, origin=-10.0)
    assert sample.failure is None
    assert sample.sent_s == 10.25  # the connection takes a quarter of a second: the request is sent when it is there
    assert sample.first_byte_s == 10.75
    assert sample.events_s == (10.75, 10.77, 10.79)
    assert sample.end_s == 10.79
    assert sample.ttft_s == 0.5
    assert sample.tpot_s == pytest.approx(0.02)
    assert (sample.index, sample.planned_prompt_tokens, sample.planned_output_tokens) == (3, 4, 3)
    assert (sample.prompt_tokens, sample.output_tokens, sample.status, sample.retries) == (4, 3, 200, 0)
    assert sample.text_digest is not None


def test_the_request_on_the_wire() -> None:
    server = virtual.Server(lambda *_: virtual.Script(paced(0.5, 0.02, 3)))
    sent(server=server)
    head, _, body = server.requests[0][1].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/completions HTTP/1.1"
    fields = dict(line.lower().split(": ", 1) for line in lines[1:])
    assert fields["host"] == "srv:8000"
    assert fields["accept-encoding"] == "identity"
    assert fields["content-length"] == str(len(BODY))
    assert fields["authorization"] == f"bearer {SECRET}"
    assert body == BODY


def test_connections_are_kept_and_used_again() -> None:
    server = virtual.Server(lambda *_: virtual.Script(paced(0.5, 0.02, 3)))
    samples = sent(server=server, times=3)
    assert server.connections == 1
    assert [sample.sent_s for sample in samples] == [0.0, 0.54, 1.08]


def test_a_kept_connection_that_the_server_closes_is_replaced_once() -> None:
    good = virtual.Script(paced(0.5, 0.02, 3))
    closing = virtual.Script((), then="close", then_after_s=0.1)  # the race: it closes while the request is on its way
    server = virtual.Server(lambda n, _: closing if n == 1 else good)
    first, second = sent(server=server, times=2)
    assert (first.retries, second.retries, second.failure) == (0, 1, None)
    assert server.connections == 2
    assert second.sent_s == pytest.approx(0.64)
    assert second.ttft_s == pytest.approx(0.5)


def test_an_idle_connection_that_has_closed_is_not_used() -> None:
    closes = virtual.Script(paced(0.5, 0.02, 3), then="close", then_after_s=0.0)
    server = virtual.Server(lambda *_: closes)
    samples = sent(server=server, times=2)
    assert [sample.failure for sample in samples] == [None, None]
    assert [sample.retries for sample in samples] == [0, 0]
    assert server.connections == 2


def test_no_retry_on_a_fresh_connection_nor_after_a_byte() -> None:
    assert failed() == ("truncated", "the server closed the connection before any byte of the response")
    good = virtual.Script(paced(0.5, 0.02, 3))
    cut = virtual.Script([(0.1, HEAD[:20])], then="reset")
    server = virtual.Server(lambda n, _: cut if n == 1 else good)
    _, second = sent(server=server, times=2)
    assert second.retries == 0
    assert second.failure is not None
    assert second.failure.kind == "truncated"
    assert server.connections == 1


def test_a_connection_that_is_lost_before_the_request() -> None:
    server = virtual.Server(lambda *_: virtual.Script(()), dies_on_accept=True)
    (sample,) = sent(server=server)
    assert sample.failure is not None
    assert (sample.failure.kind, sample.end_s, server.requests) == ("truncated", 0.0, [])


def test_refused_connection() -> None:
    async def main(loop: virtual.VirtualLoop) -> Sample:
        async with Client(base_url="http://srv", endpoint="chat", clock=Clock(loop.time, 0.0)) as client:
            return await client.send(BODY, request=REQUEST, stage="s")

    sample = virtual.run(main)
    assert sample.failure is not None
    assert (sample.failure.kind, sample.failure.detail) == ("connect", "cannot connect to srv:80: Connection refused")
    assert (sample.sent_s, sample.end_s, sample.status, sample.first_byte_s) == (0.0, 0.0, None, None)


def test_connect_time_out() -> None:
    server = virtual.Server(lambda *_: virtual.Script(()), connect_s=60.0)
    (sample,) = sent(server=server, timeouts=Timeouts(connect_s=2.0))
    assert sample.failure is not None
    assert (sample.failure.kind, sample.end_s) == ("connect", 2.0)


def test_read_time_out_counts_from_the_last_byte() -> None:
    sends = [(4.0, HEAD), (8.0, chunk(token())), (8.0, chunk(token()))]
    (sample,) = sent(virtual.Script(sends), timeouts=Timeouts(read_s=5.0))
    assert sample.failure is not None
    assert (sample.failure.kind, sample.failure.detail) == ("timeout", "no byte for 5 s, after 2 events with content")
    assert sample.end_s == 13.0
    assert sample.events_s == (8.0, 8.0)


def test_status_with_body_and_retry_after() -> None:
    slow_down = response("429 Too Many Requests", b'{"error": "slow\n down"}', headers=("retry-after: 7",))
    (sample,) = sent(virtual.Script([(0.1, slow_down)]))
    assert sample.failure is not None
    assert (sample.failure.kind, sample.failure.detail) == ("status", 'HTTP 429: {"error": "slow down"}')
    assert (sample.status, sample.retry_after_s, sample.events_s) == (429, 7.0, ())


def test_a_server_that_echoes_the_secret_is_not_quoted() -> None:
    body = b"Incorrect API key " + SECRET.encode() + b" in Bearer " + SECRET.encode() + b" " + b"x" * 500
    kind, detail = failed((0.1, response("401 Unauthorized", body)))
    assert kind == "status"
    assert detail.startswith("HTTP 401: Incorrect API key *** in ***")
    assert len(detail) == 200


def test_other_headers_are_secret_too() -> None:
    body = b"bad key abc123"
    assert failed((0.1, response("403 Forbidden", body)), headers={"api-key": "abc123"})[1] == "HTTP 403: bad key ***"


def test_wrong_content_type() -> None:
    kind, detail = failed((0.1, response("200 OK", b"<html>hello", "text/html")))
    assert (kind, detail) == ("protocol", "content type text/html instead of text/event-stream: <html>hello")


def test_compressed_although_identity_was_asked_for() -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    assert failed((0.1, head + chunk(b"\x1f\x8b") + END))[0] == "protocol"


def test_not_http() -> None:
    kind, detail = failed((0.1, b"SSH-2.0-OpenSSH_9.6\r\n"))
    assert kind == "protocol"
    assert detail.startswith("not HTTP/1.1: ")


def test_error_in_the_stream_wins_over_the_cut_that_follows() -> None:
    head = HEAD + chunk(token())
    error = chunk(event({"error": {"message": "engine died"}}))
    assert failed((0.1, head), (0.2, error), then="reset") == ("server_error", "engine died")
    assert failed((0.1, HEAD + error + chunk(DONE) + END)) == ("server_error", "engine died")


def test_reset_and_end_in_mid_stream() -> None:
    some = (0.1, HEAD + chunk(token()) + chunk(token()))
    assert failed(some, then="reset") == (
        "truncated",
        "connection lost (ConnectionResetError) before the response was whole, after 2 events with content",
    )
    assert failed(some, then="close") == (
        "truncated",
        "connection closed before the response was whole, after 2 events with content",
    )


def test_missing_end_mark() -> None:
    sends = (0.1, HEAD + chunk(token()) + chunk(token("", "length")) + chunk(usage(3)) + END)
    kind, detail = failed(sends)
    assert kind == "truncated"
    assert detail == "the stream ended without [DONE] (finish_reason length, 1 events with content)"
    (sample,) = sent(virtual.Script([sends]), expects=Expects(done_required=False))
    assert sample.ok
    unfinished = (0.1, HEAD + chunk(token()) + END)
    assert failed(unfinished, expects=Expects(done_required=False))[0] == "truncated"


def test_fewer_tokens_than_forced() -> None:
    short = paced(0.1, 0.01, 2)
    assert failed(*short) == ("truncated", "2 of 3 output tokens, finish_reason length")
    (sample,) = sent(virtual.Script(short), expects=Expects(exact_output=False))
    assert sample.ok


def test_no_token_at_all() -> None:
    assert failed((0.1, HEAD + chunk(DONE) + END)) == ("truncated", "no event with content and no usage")


def test_tokens_without_text_are_counted_by_the_server_alone() -> None:
    sends = [(0.1, HEAD + chunk(token("")) + chunk(usage(3)) + chunk(DONE) + END)]
    (sample,) = sent(virtual.Script(sends))
    assert (sample.ok, sample.events_s, sample.output_tokens, sample.ttft_s) == (True, (), 3, None)


def test_garbage_in_the_stream() -> None:
    assert failed((0.1, HEAD + chunk(b"data: oops\n\n") + chunk(DONE) + END)) == (
        "protocol",
        "event is no JSON object: oops",
    )


def test_body_that_ends_with_the_connection() -> None:
    head = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    body = token() + token("", "stop") + usage(3) + b"data: [DONE]"
    (sample,) = sent(virtual.Script([(0.1, head), (0.2, body)], then="close", then_after_s=0.3))
    assert sample.ok
    assert (sample.events_s, sample.end_s) == ((0.2,), 0.2)


def test_interim_responses_are_passed_over() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    (sample,) = sent(virtual.Script([(0.1, early), *paced(0.5, 0.1, 3)]))
    assert sample.ok
    assert (sample.first_byte_s, sample.ttft_s) == (0.1, 0.5)


def test_a_trailer_is_no_header() -> None:
    head = b"HTTP/1.1 429 Too Many\r\ntransfer-encoding: chunked\r\n\r\n"
    (sample,) = sent(virtual.Script([(0.1, head + chunk(b"no") + b"0\r\nretry-after: 9\r\n\r\n")]))
    assert sample.failure is not None
    assert (sample.status, sample.retry_after_s) == (429, None)


def test_bytes_after_the_response_close_the_connection() -> None:
    sends = paced(0.1, 0.1, 3)
    sends[-1] = (sends[-1][0], sends[-1][1] + b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
    server = virtual.Server(lambda *_: virtual.Script(sends))
    samples = sent(server=server, times=2)
    assert [sample.failure for sample in samples] == [None, None]
    assert server.connections == 2


def test_bytes_that_nobody_asked_for_close_an_idle_connection() -> None:
    sends = [*paced(0.1, 0.1, 3), (0.31, b"HTTP/1.1 408 Request Timeout\r\n\r\n")]

    async def main(loop: virtual.VirtualLoop) -> list[Sample]:
        server = loop.server = virtual.Server(lambda *_: virtual.Script(sends))
        async with Client(base_url="http://srv", endpoint="completions", clock=Clock(loop.time, 0.0)) as client:
            samples = []
            for _ in range(2):
                samples.append(await client.send(BODY, request=REQUEST, stage="s"))
                await asyncio.sleep(1)
            assert server.connections == 2
            return samples

    assert [(sample.failure, sample.retries) for sample in virtual.run(main)] == [(None, 0), (None, 0)]


def test_chat_stream_and_cached_tokens() -> None:
    start = HEAD + chunk(delta(role="assistant", content=""))
    rest = chunk(delta("length", content="a")) + chunk(usage(3, prompt=9, cached=8)) + chunk(DONE) + END
    (sample,) = sent(virtual.Script([(0.1, start), (0.4, rest)]))
    assert (sample.first_byte_s, sample.ttft_s, sample.cached_tokens) == (0.1, 0.4, 8)


def test_a_long_stream_is_read_while_it_comes() -> None:
    tokens = 3000
    request = Request(index=0, runs=(), output_tokens=tokens)

    async def main(loop: virtual.VirtualLoop) -> tuple[int, int, Sample]:
        loop.server = virtual.Server(lambda *_: virtual.Script(paced(0.0, 0.001, tokens)))
        async with Client(base_url="http://srv", endpoint="completions", clock=Clock(loop.time, 0.0)) as client:
            task = asyncio.create_task(client.send(BODY, request=request, stage="s"))
            await asyncio.sleep(2.1)
            (exchange,) = client._exchanges.values()
            return client.events_in_flight(), len(exchange.recording), await task

    seen, kept, sample = virtual.run(main)
    assert 1900 < seen <= 2100
    assert kept < 2 * 251
    assert sample.ok
    assert len(sample.events_s) == tokens
    assert sample.events_s[-1] == pytest.approx(2.999)


def test_a_body_that_is_no_stream_is_kept_as_far_as_a_message_needs_it() -> None:
    exchange = Exchange(0.0)
    exchange.answered(httpx.Response(200, headers={"content-type": "text/html"}))
    for _ in range(100):
        exchange.recording += [0.0, b"x" * 10_000, b"y"]
        assert exchange.read(128) == 3
        assert exchange.recording == []
    assert len(exchange.excerpt) == EXCERPT_BYTES
    assert exchange.body_text().startswith("x" * 10_000 + "yx")


def test_abort_ends_what_is_in_flight_and_not_its_caller() -> None:
    async def main(loop: virtual.VirtualLoop) -> list[Sample]:
        loop.server = virtual.Server(lambda *_: virtual.Script(paced(0.5, 0.5, 3)), connect_s=0.1)
        async with Client(base_url="http://srv", endpoint="completions", clock=Clock(loop.time, 0.0)) as client:
            tasks = [asyncio.create_task(client.send(BODY, request=REQUEST, stage="s")) for _ in range(2)]
            await asyncio.sleep(0.75)
            assert client.in_flight == 2
            client.abort()
            return [await task for task in tasks]

    for sample in virtual.run(main):
        assert sample.failure is not None
        assert (sample.failure.kind, sample.end_s, sample.events_s) == ("stopped", 0.75, (0.6,))


def test_cancelling_the_task_is_not_an_abort() -> None:
    async def main(loop: virtual.VirtualLoop) -> None:
        server = loop.server = virtual.Server(lambda *_: virtual.Script(paced(0.5, 0.5, 3)))
        async with Client(base_url="http://srv", endpoint="completions", clock=Clock(loop.time, 0.0)) as client:
            task = asyncio.create_task(client.send(BODY, request=REQUEST, stage="s"))
            await asyncio.sleep(0.75)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert client.in_flight == 0
            assert (await client.send(BODY, request=REQUEST, stage="s")).ok
            assert server.connections == 2  # the half-read one was closed

    virtual.run(main)


def test_responses_leave_no_work_for_the_garbage_collector() -> None:
    async def main(loop: virtual.VirtualLoop) -> int:
        loop.server = virtual.Server(lambda *_: virtual.Script(paced(0.1, 0.1, 3)))
        async with Client(base_url="http://srv", endpoint="completions", clock=Clock(loop.time, 0.0)) as client:
            await client.send(BODY, request=REQUEST, stage="s")
            gc.collect()
            for _ in range(10):
                await client.send(BODY, request=REQUEST, stage="s")
            return sum(type(found).__name__ == "Answer" for found in gc.get_objects())

    gc.disable()
    try:
        assert virtual.run(main) == 0
    finally:
        gc.enable()


NO_SECONDS = ("soon", "nan", "inf", "-1", "9" * 400, f"1 Jan {10**30} 0:0:0", f"1 Jan 2000 0:0:0 -{10**20}")


@pytest.mark.parametrize(
    ("value", "seconds"), [("3", 3.0), ("0.5", 0.5), (None, None), *((value, None) for value in NO_SECONDS)]
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value) == seconds


def test_retry_after_as_a_date() -> None:
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    far = retry_after_s("Fri, 31 Dec 2199 23:59:59 GMT")
    assert far is not None
    assert far > 1e9


def test_secrets_are_the_values_of_all_but_the_plain_headers() -> None:
    headers = {"Authorization": " Bearer abc ", "X-Key": "k", "Accept": "x", "empty": ""}
    assert secrets_of(headers) == ("Bearer abc", "abc", "k")


@pytest.mark.parametrize("url", ["srv:8000", "ftp://srv", "http://", "http://[::1", "", "http:///v1"])
def test_a_url_that_cannot_be_asked(url: str) -> None:
    with pytest.raises(UserError, match="give http://HOST:PORT"):
        Client(base_url=url, endpoint="chat", clock=Clock())


def test_a_header_that_cannot_be_sent_is_not_quoted() -> None:
    with pytest.raises(UserError, match="header authorization") as caught:
        Client(base_url="http://srv", endpoint="chat", clock=Clock(), headers={"authorization": f"{SECRET}\nx"})
    assert SECRET not in str(caught.value)
    with pytest.raises(UserError, match="header authorization"):
        Client(base_url="http://srv", endpoint="chat", clock=Clock(), headers={"authorization": "clé"})
