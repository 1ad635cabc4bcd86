"""Bodies and responses as OpenAI-compatible servers write them."""

import json
from collections.abc import Sequence
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"


def event(body: Any) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def token(text: str = " the", finish: str | None = None, **more: Any) -> bytes:
    return event({"choices": [{"index": 0, "text": text, "finish_reason": finish}], "usage": None, **more})


def delta(finish: str | None = None, **fields: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


def usage(output: int, prompt: int = 4, cached: int | None = None) -> bytes:
    counts: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": output}
    if cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
    return event({"choices": [], "usage": counts})


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def response(status: str, body: bytes, content_type: str = "application/json", headers: Sequence[str] = ()) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-type: {content_type}", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def paced(first_s: float, gap_s: float, tokens: int, output_tokens: int | None = None) -> list[tuple[float, bytes]]:
    """A whole good stream: (seconds after the request, bytes)."""
    sends = [(first_s, HEAD + chunk(token()))]
    sends += [(first_s + n * gap_s, chunk(token())) for n in range(1, tokens)]
    count = tokens if output_tokens is None else output_tokens
    at, last = sends[-1]
    sends[-1] = (at, last + chunk(token("", "length")) + chunk(usage(count)) + chunk(DONE) + END)
    return sends
