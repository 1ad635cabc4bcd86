"""Both transports on real loopback sockets: what servers, networks and proxies do to a request."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from fakes.server import Seen, proxying, serving
from fakes.streams import DONE, END, HEAD, chunk, event, response, token, usage

from loadgen.clock import Clock
from loadgen.drive.client import Client
from loadgen.drive.connection import CutOff
from loadgen.drive.transport import LeanTransport, Timeouts
from loadgen.records import Request, Run, Sample

Transport = Literal["lean", "httpx"]
BOTH = pytest.mark.parametrize("transport", ["lean", "httpx"])
REQUEST = Request(index=0, runs=(Run("a", 4),), output_tokens=2)
SECRET = "sk-topsecret"
GOOD = [HEAD, chunk(token()), 0.02, chunk(token(" cat", "length")), chunk(usage(2)), chunk(DONE) + END]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def client_of(url: str, transport: Transport, **options: Any) -> Client:
    options.setdefault("timeouts", Timeouts(connect_s=5.0, read_s=5.0))
    headers = {"authorization": f"Bearer {SECRET}"}
    return Client(base_url=url, endpoint="completions", clock=Clock(), transport=transport, headers=headers, **options)


def sent(answer: Callable[[int, bytes], Any], transport: Transport, times: int = 1, **options: Any) -> list[Sample]:
    async def main() -> list[Sample]:
        async with serving(answer) as seen, client_of(seen.url, transport, **options) as client:
            samples = [await client.send(b"{}", request=REQUEST, stage="s") for _ in range(times)]
            assert SECRET not in repr(samples)
            assert SECRET.encode() in seen.requests[0]
            return samples

    return asyncio.run(main())


def failure(steps: Any, transport: Transport, **options: Any) -> tuple[str, str]:
    (sample,) = sent(lambda *_: steps, transport, **options)
    assert sample.failure is not None
    return sample.failure.kind, sample.failure.detail


@BOTH
def test_good_stream_on_kept_connection(transport: Transport) -> None:
    async def main() -> None:
        async with serving(lambda *_: GOOD) as seen, client_of(seen.url, transport) as client:
            for _ in range(3):
                sample = await client.send(b"{}", request=REQUEST, stage="s")
                assert sample.failure is None
                assert sample.first_byte_s is not None
                assert sample.sent_s <= sample.first_byte_s <= sample.events_s[0]
                assert sample.events_s[1] - sample.events_s[0] > 0.01
                assert sample.events_s[1] <= sample.end_s
                assert (sample.output_tokens, sample.status, sample.retries) == (2, 200, 0)
            assert seen.connections == 1

    asyncio.run(main())


@BOTH
def test_server_closes_the_kept_connection_as_the_next_request_comes(transport: Transport) -> None:
    async def main() -> None:
        async with (
            serving(lambda n, _: ["close"] if n == 1 else GOOD) as seen,
            client_of(seen.url, transport) as client,
        ):
            first = await client.send(b"{}", request=REQUEST, stage="s")
            second = await client.send(b"{}", request=REQUEST, stage="s")
            assert (first.retries, second.retries, second.failure) == (0, 1, None)
            assert seen.connections == 2

    asyncio.run(main())


@BOTH
def test_server_closes_an_idle_connection(transport: Transport) -> None:
    async def main() -> None:
        async with serving(lambda *_: [*GOOD, "close"]) as seen, client_of(seen.url, transport) as client:
            for _ in range(2):
                sample = await client.send(b"{}", request=REQUEST, stage="s")
                assert (sample.failure, sample.retries) == (None, 0)
                await asyncio.sleep(0.05)
            assert seen.connections == 2

    asyncio.run(main())


@BOTH
def test_closed_on_a_fresh_connection(transport: Transport) -> None:
    (sample,) = sent(lambda *_: ["close"], transport)
    assert sample.failure is not None
    assert (sample.failure.kind, sample.retries) == ("truncated", 0)


@BOTH
@pytest.mark.parametrize("how", ["reset", "close"])
def test_cut_in_mid_stream(transport: Transport, how: str) -> None:
    kind, detail = failure([HEAD, chunk(token()), 0.02, how], transport)
    assert kind == "truncated"
    assert detail.endswith(", after 1 events with content")


@BOTH
def test_stall_in_mid_stream(transport: Transport) -> None:
    kind, detail = failure([HEAD, chunk(token()), 0.02, "hang"], transport, timeouts=Timeouts(read_s=0.1))
    assert (kind, detail) == ("timeout", "no byte for 0.1 s, after 1 events with content")


@BOTH
def test_slow_headers(transport: Transport) -> None:
    (sample,) = sent(lambda *_: [0.1, HEAD[:30], 0.05, HEAD[30:], *GOOD[1:]], transport)
    assert sample.failure is None
    assert sample.first_byte_s is not None
    assert sample.first_byte_s - sample.sent_s >= 0.1
    assert failure(["hang"], transport, timeouts=Timeouts(read_s=0.1))[0] == "timeout"


@BOTH
def test_refused(transport: Transport) -> None:
    async def main() -> Sample:
        async with serving(lambda *_: GOOD) as seen:
            url = seen.url
        async with client_of(url, transport) as client:
            return await client.send(b"{}", request=REQUEST, stage="s")

    sample = asyncio.run(main())
    assert sample.failure is not None
    assert sample.failure.kind == "connect"
    assert sample.failure.detail.startswith("cannot connect to localhost:")


@BOTH
@pytest.mark.parametrize(
    ("steps", "kind", "detail"),
    [
        ([response("429 Too Many", b"slow", headers=("retry-after: 2",))], "status", "HTTP 429: slow"),
        ([response("500 Oops", f"no {SECRET}".encode())], "status", "HTTP 500: no ***"),
        ([response("503 Busy", b"")], "status", "HTTP 503: no body"),
        ([response("200 OK", b"<html>", "text/html")], "protocol", "content type text/html"),
        ([HEAD, chunk(token()), chunk(event({"error": {"message": "boom"}})) + END], "server_error", "boom"),
        ([HEAD, chunk(token()), chunk(usage(2)) + END], "truncated", "the stream ended without [DONE]"),
        ([HEAD, chunk(token()), chunk(usage(1)) + chunk(DONE) + END], "truncated", "1 of 2 output tokens"),
        ([HEAD, chunk(b"data: <oops>\n\n") + chunk(DONE) + END], "protocol", "event is no JSON object: <oops>"),
        ([b"\x16\x03\x01garbage\r\n\r\n", "close"], "protocol", ""),
        ([HEAD, b"zz\r\n", "close"], "protocol", ""),
    ],
)
def test_endings(transport: Transport, steps: Any, kind: str, detail: str) -> None:
    (sample,) = sent(lambda *_: steps, transport)
    assert sample.failure is not None
    assert (sample.failure.kind, sample.failure.detail[: len(detail)]) == (kind, detail)
    assert sample.retry_after_s == (2.0 if sample.status == 429 else None)


@BOTH
def test_a_redirect_to_no_url_is_a_failed_request(transport: Transport) -> None:
    kind, detail = failure([response("302 Found", b"", headers=("location: http:x",))], transport)
    assert (kind, detail[:9]) == {"lean": ("status", "HTTP 302:"), "httpx": ("protocol", "redirects")}[transport]


@BOTH
def test_abort(transport: Transport) -> None:
    async def main() -> Sample:
        async with serving(lambda *_: [HEAD, chunk(token()), "hang"]) as seen, client_of(seen.url, transport) as client:
            task = asyncio.create_task(client.send(b"{}", request=REQUEST, stage="s"))
            await asyncio.sleep(0.1)
            client.abort()
            return await task

    sample = asyncio.run(main())
    assert sample.failure is not None
    assert (sample.failure.kind, len(sample.events_s)) == ("stopped", 1)


def test_many_at_once_have_a_connection_each() -> None:
    async def main() -> None:
        async with serving(lambda *_: GOOD) as seen, client_of(seen.url, "lean") as client:
            for _ in range(2):
                sends = [client.send(b"{}", request=REQUEST, stage="s") for _ in range(150)]
                assert all(sample.ok for sample in await asyncio.gather(*sends))
            assert seen.connections == 150

    asyncio.run(main())


# --- TLS and proxies -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    assert openssl is not None, "these tests need the openssl program"
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    argv = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    argv += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(argv, check=True, capture_output=True)
    return key, certificate


def over_tls(
    certificate: tuple[Path, Path], transport: Transport, trusting: bool, around: Callable[[], Any] | None = None
) -> tuple[Sample, Sample, Seen]:
    serving_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving_tls.load_cert_chain(certificate[1], certificate[0])
    tls = ssl.create_default_context(cafile=str(certificate[1]) if trusting else None)

    async def main() -> tuple[Sample, Sample, Seen]:
        async with serving(lambda *_: GOOD, serving_tls) as seen, client_of(seen.url, transport, tls=tls) as client:
            first = await client.send(b"{}", request=REQUEST, stage="s")
            return first, await client.send(b"{}", request=REQUEST, stage="s"), seen

    return asyncio.run(main())


@BOTH
def test_tls(transport: Transport, certificate: tuple[Path, Path]) -> None:
    first, second, seen = over_tls(certificate, transport, trusting=True)
    assert (first.failure, second.failure, seen.connections) == (None, None, 1)
    assert len(second.events_s) == 2


@BOTH
def test_a_certificate_that_is_not_trusted(transport: Transport, certificate: tuple[Path, Path]) -> None:
    first, _, _ = over_tls(certificate, transport, trusting=False)
    assert first.failure is not None
    assert first.failure.kind == "connect"
    assert "CERTIFICATE_VERIFY_FAILED" in first.failure.detail


def through_proxy(
    monkeypatch: pytest.MonkeyPatch, tls: tuple[ssl.SSLContext, ssl.SSLContext] | None
) -> tuple[list[Sample], Seen]:
    async def main() -> tuple[list[Sample], Seen]:
        async with proxying() as proxy, serving(lambda *_: GOOD, tls[0] if tls else None) as seen:
            monkeypatch.setenv("HTTPS_PROXY" if tls else "HTTP_PROXY", proxy.url)
            options = {"tls": tls[1]} if tls else {}
            async with client_of(seen.url, "httpx", **options) as client:
                return [await client.send(b"{}", request=REQUEST, stage="s") for _ in range(2)], proxy

    return asyncio.run(main())


def test_proxy_for_http(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, proxy = through_proxy(monkeypatch, None)
    assert [sample.failure for sample in samples] == [None, None]
    assert proxy.requests[0].startswith(b"POST http://localhost:")


def test_proxy_for_https(monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path]) -> None:
    serving_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving_tls.load_cert_chain(certificate[1], certificate[0])
    samples, proxy = through_proxy(monkeypatch, (serving_tls, ssl.create_default_context(cafile=str(certificate[1]))))
    assert [sample.failure for sample in samples] == [None, None]
    assert proxy.requests[0].startswith(b"CONNECT localhost:")
    assert SECRET.encode() not in proxy.requests[0]


# --- the transport under httpx itself ------------------------------------------------------------------------


def with_httpx(answer: Callable[[int, bytes], Any], use: Callable[[httpx.AsyncClient, Seen], Awaitable[None]]) -> None:
    async def main() -> None:
        async with serving(answer) as seen, httpx.AsyncClient(transport=LeanTransport(), base_url=seen.url) as http:
            await use(http, seen)

    asyncio.run(main())


def test_the_lean_transport_serves_httpx() -> None:
    async def use(http: httpx.AsyncClient, seen: Seen) -> None:
        for path in ("/a?b=c", "/d"):
            got = await http.post(path, json={"x": 1})
            assert (got.status_code, got.json()) == (200, {"y": 2})
        assert seen.requests[0].startswith(b"POST /a?b=c HTTP/1.1\r\n")
        assert seen.requests[0].endswith(b'{"x":1}')
        assert seen.connections == 1

    with_httpx(lambda *_: [response("200 OK", b'{"y": 2}')], use)


def test_a_response_that_is_not_read_closes_its_connection() -> None:
    async def use(http: httpx.AsyncClient, seen: Seen) -> None:
        for _ in range(2):
            async with http.stream("POST", "/", content=b"x") as got:
                assert got.status_code == 200
        assert seen.connections == 2

    with_httpx(lambda *_: [HEAD, 1.0], use)


def test_the_server_that_asks_to_close_is_obeyed() -> None:
    async def use(http: httpx.AsyncClient, seen: Seen) -> None:
        for _ in range(2):
            assert (await http.post("/", content=b"x")).text == "ok"
        assert seen.connections == 2

    with_httpx(lambda *_: [response("200 OK", b"ok", headers=("connection: close",))], use)


def test_errors_are_httpx_errors() -> None:
    async def use(http: httpx.AsyncClient, seen: Seen) -> None:
        with pytest.raises(CutOff):
            await http.post("/", content=b"x")

    with_httpx(lambda *_: [HEAD, "close"], use)
