"""Where a server is: one way to write it."""

from urllib.parse import urlsplit

from loadgen.errors import UserError


def server_root(url: str) -> str:
    """`url` without a trailing slash or "/v1". Raises UserError for what is not an http(s) URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"{url}: not a URL of a server; write it like http://127.0.0.1:8000")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")
