"""Where a server is: one way to write it, and whether it is this machine."""

import ssl
from urllib.parse import urlsplit

import httpx

from loadgen.errors import UserError

Wire = httpx.AsyncBaseTransport | None


def server_root(url: str) -> str:
    """`url` without a trailing slash or "/v1". Raises UserError for what is not an http(s) URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"{url}: not a URL of a server; write it like http://127.0.0.1:8000")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def is_loopback(url: str) -> bool:
    """True for this machine: no proxy of the environment stands between, and the host's facts are the server's."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def verified(tls: ssl.SSLContext | None) -> Wire:
    """A transport whose https servers are verified by `tls`; None, for httpx's own ways, where that is None."""
    return None if tls is None else httpx.AsyncHTTPTransport(verify=tls)
