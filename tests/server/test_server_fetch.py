"""Answers that httpx would follow, unpack or read without end."""

import asyncio
import gzip

import httpx
import pytest

from loadgen.server.fetch import MOST_BYTES, Fetched, fetch


def fetched(answer: httpx.Response) -> Fetched:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["accept-encoding"] == "identity"
        return answer

    async def main() -> Fetched:
        async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as client:
            return await fetch(client, "http://x/metrics")

    return asyncio.run(main())


class Endless(httpx.AsyncByteStream):
    given = 0

    async def __aiter__(self):
        while True:
            self.given += 1
            yield b"x" * 65536


def test_a_body_without_end_is_left() -> None:
    endless = Endless()
    with pytest.raises(httpx.DecodingError, match="longer than 16 MiB"):
        fetched(httpx.Response(200, stream=endless))
    assert endless.given <= MOST_BYTES // 65536 + 1


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate"])
def test_what_is_packed_is_not_unpacked(encoding: str) -> None:
    class Packed(httpx.AsyncByteStream):
        async def __aiter__(self):
            yield gzip.compress(b"x" * 10**6)

    with pytest.raises(httpx.DecodingError, match=f"content-encoding {encoding} although identity was asked for"):
        fetched(httpx.Response(200, headers={"content-encoding": encoding}, stream=Packed()))


def test_a_redirect_to_no_url_is_an_http_error() -> None:
    with pytest.raises(httpx.HTTPError):
        fetched(httpx.Response(302, headers={"location": "http://h:99999999/\x00"}))
    with pytest.raises(httpx.RemoteProtocolError, match="redirects to what is no URL"):
        fetched(httpx.Response(302, headers={"location": "http:x"}))


@pytest.mark.parametrize("charset", ["base64", "utf-16", "unicode_escape", "no-such"])
def test_text_is_utf_8_whatever_it_says(charset: str) -> None:
    answer = fetched(
        httpx.Response(200, headers={"content-type": f"text/plain; charset={charset}"}, content=b"\xc3\xa9 \xff")
    )
    assert (answer.text, answer.content_type) == ("é �", "text/plain")


@pytest.mark.parametrize("body", [b"[" * 100_000, b"\xff", b"9" * 5000, b"", b'{"id": "\\ud800"}'])
def test_json_that_is_none(body: bytes) -> None:
    assert fetched(httpx.Response(200, content=body)).json() is None
