"""One GET whose answer may be anything: what probe, facts and scrape ask with."""

from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

MOST_BYTES = 16 * 2**20  # /metrics of vLLM has about 50 KB per rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """An answer, as it came over the wire."""

    status: int
    content_type: str
    body: bytes

    @property
    def text(self) -> str:
        """The body as UTF-8, whatever character set it says it has: JSON and Prometheus text know no other."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON; None if it is none, or holds text that cannot be written (half of a surrogate pair)."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError):
            return None


async def fetch(client: httpx.AsyncClient, url: str) -> Fetched:
    """The answer to a GET of `url`.

    Raises httpx.HTTPError; also for a body that is longer than MOST_BYTES or encoded, which identity was asked for: a
    few bytes of gzip can stand for gigabytes.
    """
    body = bytearray()
    try:
        async with client.stream("GET", url, headers={"accept-encoding": "identity"}) as response:
            encoding = response.headers.get("content-encoding", "identity")
            if encoding != "identity":
                raise httpx.DecodingError(f"content-encoding {encoding} although identity was asked for")
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MOST_BYTES:
                    raise httpx.DecodingError(f"the answer is longer than {MOST_BYTES // 2**20} MiB")
    except httpx.InvalidURL as error:  # where it redirects to; not an HTTPError
        raise httpx.RemoteProtocolError(f"redirects to what is no URL: {error}") from error
    content_type = response.headers.get("content-type", "no content type").partition(";")[0]
    return Fetched(status=response.status_code, content_type=content_type, body=bytes(body))
