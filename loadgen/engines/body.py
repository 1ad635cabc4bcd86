"""The JSON body of one streaming request, as an engine takes it."""

from typing import Any, Literal

import msgspec

from loadgen.engines.engine import Engine

Endpoint = Literal["completions", "chat"]

_encode = msgspec.json.Encoder().encode


def request_body(
    *, endpoint: Endpoint, model: str, prompt: list[int] | str, output_tokens: int, engine: Engine
) -> bytes:
    """A request for a greedy stream of `output_tokens` tokens that ends with the usage counts.

    `prompt`: token ids, where the engine takes them and the endpoint is "completions", else text. The output's length
    is forced only where the engine has fields for it; elsewhere `output_tokens` is a limit. Raises ValueError for
    token ids that cannot be sent.
    """
    body: dict[str, Any] = {"model": model}
    if endpoint == "chat":
        if not isinstance(prompt, str):
            raise ValueError("a chat's prompt is text, not token ids")
        body["messages"] = [{"role": "user", "content": prompt}]
        body[engine.chat_limit] = output_tokens
    else:
        if not isinstance(prompt, str) and not engine.takes_token_ids:
            raise ValueError(f"{engine.label} takes no token ids: give text")
        body["prompt"] = prompt
        body["max_tokens"] = output_tokens
    body["temperature"] = 0
    body["stream"] = True
    body["stream_options"] = {"include_usage": True}
    for field, value in engine.forces_length.items():
        body[field] = output_tokens if value == "output_tokens" else value
    return _encode(body)
