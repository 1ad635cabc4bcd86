"""Is it an LLM server, has it the model, is its context long enough: asked before any load is sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import httpx

from loadgen.errors import ServerError, UserError
from loadgen.server.address import is_loopback, server_root
from loadgen.server.fetch import Fetched, fetch

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What /v1/models told: the model to ask for, and its longest context in tokens where the server tells."""

    model: str
    max_model_len: int | None


async def check(
    url: str,
    *,
    model: str | None,
    need_context: int | None = None,
    headers: Mapping[str, str] | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Probe:
    """The model that requests should name, after making sure that they can work.

    `model`: None takes the server's only one. `need_context`: prompt and output tokens of the longest request. Raises
    ServerError (nothing answers, no LLM server) and UserError (no such model, context too short, not authorised).
    """
    root = server_root(url)
    models = await _models(root, headers or {}, transport)
    names = [entry["id"] for entry in models]
    chosen = _choose(root, model, models, names)
    limit = chosen.get("max_model_len")
    max_model_len = limit if isinstance(limit, int) else None
    if need_context is not None and max_model_len is not None and need_context > max_model_len:
        raise UserError(
            f"{root}: the longest request needs {need_context:,} tokens of context and {chosen['id']} takes "
            f"{max_model_len:,}; lower max_input_tokens in the scenario, or raise the server's max-model-len"
        )
    return Probe(model=chosen["id"], max_model_len=max_model_len)


async def _models(
    root: str, headers: Mapping[str, str], transport: httpx.AsyncBaseTransport | None
) -> list[dict[str, Any]]:
    address = f"{root}/v1/models"
    try:
        async with httpx.AsyncClient(
            headers=dict(headers), timeout=TIMEOUT_S, transport=transport, trust_env=not is_loopback(root)
        ) as client:
            answer = await fetch(client, address)
    except httpx.TimeoutException as error:
        raise ServerError(f"{root}: no answer within {TIMEOUT_S:g} s; is it the right address?") from error
    except httpx.HTTPError as error:
        raise ServerError(
            f"{root}: nothing answers there ({error or type(error).__name__}); is the server up?"
        ) from error
    if answer.status in (401, 403):
        raise UserError(f"{address}: HTTP {answer.status}: the server wants a key that it was not given")
    return _entries(root, answer)


def _entries(root: str, answer: Fetched) -> list[dict[str, Any]]:
    failure = ServerError(
        f"{root}: not an OpenAI-compatible LLM server: /v1/models answered HTTP {answer.status}, {answer.content_type}"
    )
    if answer.status != 200:
        raise failure
    content = answer.json()
    entries = content.get("data") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise failure
    models = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    if not models:
        raise ServerError(f"{root}: the server has no model loaded (/v1/models names none)")
    return models


def _choose(root: str, model: str | None, models: Sequence[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    if model is None:
        whole = [entry for entry in models if entry.get("parent") is None]
        if len(whole) != 1:
            raise UserError(f"{root}: it serves {len(names)} models; choose one with --model: {', '.join(names[:8])}")
        return whole[0]
    if model not in names:
        near = get_close_matches(model, names, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]}?" if near else f"; it serves {', '.join(names[:8])}"
        raise UserError(f"{root}: no model {model}{hint}")
    return models[names.index(model)]
