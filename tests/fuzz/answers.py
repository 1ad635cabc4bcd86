"""An HTTP answer as a text file: header lines, an empty line, the body. `status: 404` gives the status."""

import asyncio

import httpx

LOOP = asyncio.new_event_loop()


def answering(data: bytes) -> httpx.AsyncBaseTransport:
    """A transport that gives this answer to every request."""
    head, _, body = data.partition(b"\n\n")
    pairs = [line.partition(b":") for line in head.splitlines() if b":" in line]
    headers = [(name.strip(), value.strip()) for name, _, value in pairs]
    told = next((value for name, value in headers if name == b"status"), b"")
    status = int(told) if told.isdigit() and len(told) == 3 else 200
    headers = [(name, value) for name, value in headers if name and name != b"status"]

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers=headers, stream=Body(body))

    return httpx.MockTransport(answer)


class Body(httpx.AsyncByteStream):
    """A body as a socket gives it, undecoded."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self):
        yield self._body
