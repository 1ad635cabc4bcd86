"""Where a server is: one way to write it, and whether it is this machine."""

import re
import ssl
from urllib.parse import urlsplit

import httpx

from loadgen.errors import UserError

Wire = httpx.AsyncBaseTransport | None


def server_root(url: str) -> str:
    """`url` without a trailing slash or "/v1". Raises UserError for what is not an http(s) URL."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a bracket left open, a port that is no number or above 65,535
        good = False
    if not good or parts.query or parts.fragment:
        raise UserError(f"{without_userinfo(url)}: not a URL of a server; write it like http://127.0.0.1:8000")
    if "@" in parts.netloc:  # it would be stored with every block
        raise UserError(f"{without_userinfo(url)}: holds a user or a password; take it out, and see --api-key-env")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def without_userinfo(text: str) -> str:
    """`text` with what stands between // and @ taken out of its URLs."""
    return re.sub(r"//\S*@", "//", text)


def is_loopback(url: str) -> bool:
    """True for this machine: no proxy of the environment stands between, and the host's facts are the server's."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def verified(tls: ssl.SSLContext | None) -> Wire:
    """A transport whose https servers are verified by `tls`; None, for httpx's own ways, where that is None."""
    return None if tls is None else httpx.AsyncHTTPTransport(verify=tls)
