"""Planted faults of a stream: its events written otherwise, pure but for the application around them."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Scope, Send

from loadgen.emulator.asgi import Plant, with_send

DATA = b"data: "
DONE = b"data: [DONE]\n\n"
NOT_JSON = b"data: <oops>\n\n"
COMMENT = b": ping\n"
COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event as the engine sent it; `body` is None for `[DONE]`."""

    raw: bytes
    body: dict[str, Any] | None

    @property
    def text(self) -> str:
        """The text that it carries; empty for a role, usage or nothing."""
        return "".join(_text(choice) for choice in (self.body or {}).get("choices") or ())

    @property
    def is_usage(self) -> bool:
        """True for vLLM's last event, which has usage and no choices."""
        return self.body is not None and not self.body.get("choices")


# The events that one event becomes. Made anew for each stream, so it may remember what came before.
Rewrite = Callable[[Event], Iterable[bytes]]


def rewriting(begun: Callable[[Any], Rewrite], ahead: Callable[[Any], Sequence[bytes]] = lambda _: ()) -> Plant:
    """A fault that rewrites each event by `begun(value)` and sends the events of `ahead(value)` before the first."""

    def plant(app: ASGIApp, value: Any) -> ASGIApp:
        def made(scope: Scope, send: Send) -> Send:
            rewrite = begun(value)

            async def rewritten(message: Message) -> None:
                if message["type"] == "http.response.start":
                    await send(message)
                    bodies: Iterable[bytes] = ahead(value)
                else:
                    body = message.get("body", b"")
                    bodies = rewrite(_event(body)) if body.startswith(DATA) else [body]
                for body in bodies:
                    if body:  # an empty chunk would end the body
                        await send({"type": "http.response.body", "body": body, "more_body": True})
                if message["type"] == "http.response.body" and not message.get("more_body", False):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

            return rewritten

        return with_send(app, made)

    return plant


def encoded(body: dict[str, Any]) -> bytes:
    """An event of that body."""
    return DATA + json.dumps(body).encode() + b"\n\n"


def as_it_is(value: None) -> Rewrite:
    """Nothing changes."""
    return lambda event: (event.raw,)


def without_done(value: None) -> Rewrite:
    """`[DONE]` is left out."""
    return lambda event: () if event.body is None else (event.raw,)


def with_crlf(value: None) -> Rewrite:
    """Lines end in CR LF."""
    return lambda event: (event.raw.replace(b"\n", b"\r\n"),)


def with_comments(value: None) -> Rewrite:
    """A comment on its own and another within the event: what servers send to keep a connection open."""
    return lambda event: (COMMENT + b"\n", COMMENT + event.raw)


def several_tokens(count: int) -> Rewrite:
    """The texts of `count` events come in one, as with speculative decoding; what ends a stream ends the wait."""
    texts: list[str] = []

    def rewrite(event: Event) -> list[bytes]:
        if event.text and event.body is not None:
            texts.append(event.text)
            if len(texts) < count and not _finish(event.body):
                return []
            body = _with_text(event.body, "".join(texts))
            texts.clear()
            return [encoded(body)]
        return [event.raw]

    return rewrite


def empty_event(value: None) -> list[bytes]:
    """An event without text, before there is any."""
    return [encoded({"choices": [{"index": 0, "text": "", "delta": {"content": ""}, "finish_reason": None}]})]


def role_event(value: None) -> list[bytes]:
    """An event that says who speaks, before anybody does: a chat's first in vLLM and at OpenAI."""
    return [encoded({"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]})]


def as_delta(fields: Callable[[str], dict[str, Any]]) -> Rewrite:
    """Each text becomes a delta of these `fields`."""

    def rewrite(event: Event) -> list[bytes]:
        if not event.text or event.body is None:
            return [event.raw]
        return [encoded({**event.body, "choices": [_as_delta(c, fields(_text(c))) for c in event.body["choices"]]})]

    return rewrite


def as_reasoning(key: str) -> Rewrite:
    """Each text becomes reasoning, under that key."""
    return as_delta(lambda text: {key: text})


def as_tool_calls(value: None) -> Rewrite:
    """Each text becomes a piece of a tool call's arguments."""
    return as_delta(lambda text: {"tool_calls": [{"index": 0, "function": {"arguments": text}}]})


def without_usage(value: None) -> Rewrite:
    """No event has usage, and the one for it is left out."""

    def rewrite(event: Event) -> list[bytes]:
        if event.body is None or "usage" not in event.body:
            return [event.raw]
        kept = {key: part for key, part in event.body.items() if key != "usage"}
        return [] if event.is_usage else [encoded(kept)]

    return rewrite


def with_usage_of(made: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Rewrite:
    """What usage there is becomes `made(usage)`."""

    def rewrite(event: Event) -> list[bytes]:
        if event.body is None or event.body.get("usage") is None:
            return [event.raw]
        return [encoded({**event.body, "usage": made(event.body["usage"])})]

    return rewrite


def usage_null(value: None) -> Rewrite:
    """The event for usage comes, and has none."""
    return with_usage_of(lambda _: None)


def usage_zero(value: None) -> Rewrite:
    """Every count is 0."""
    return with_usage_of(lambda usage: {**usage, **dict.fromkeys(COUNTS, 0)})


def usage_last(value: None) -> Rewrite:
    """Usage comes once, in an event with empty choices before `[DONE]`, and its key nowhere else."""
    held: list[dict[str, Any]] = []

    def rewrite(event: Event) -> list[bytes]:
        if event.body is None:
            return [*(encoded({**body, "choices": []}) for body in held), event.raw]
        if event.body.get("usage") is not None:
            held[:] = [event.body]
        kept = {key: part for key, part in event.body.items() if key != "usage"}
        return [] if event.is_usage else [encoded(kept)]

    return rewrite


def usage_with_finish(value: None) -> Rewrite:
    """Usage comes with the finish reason, and in no event of its own."""
    held: list[dict[str, Any]] = []

    def rewrite(event: Event) -> list[bytes]:
        if event.body is None:
            return [*map(encoded, held), event.raw]
        if _finish(event.body):
            held[:] = [event.body]
            return []
        if event.is_usage and held:
            held[0] = {**held[0], "usage": event.body.get("usage")}
            return []
        return [event.raw]

    return rewrite


def shortened(tokens: int) -> Rewrite:
    """The output ends after so many tokens, as if no length had been forced; usage counts what came."""
    seen = 0

    def rewrite(event: Event) -> list[bytes]:
        nonlocal seen
        if event.body is None:
            return [event.raw]
        if event.body.get("usage") is not None:
            usage = {**event.body["usage"], "completion_tokens": min(seen, tokens)}
            event = Event(event.raw, {**event.body, "usage": usage})
        seen += bool(event.text)
        if event.text and seen == tokens and event.body is not None:
            return [encoded({**event.body, "choices": [{**c, "finish_reason": "stop"} for c in event.body["choices"]]})]
        return [] if not event.is_usage and seen > tokens else [encoded(event.body or {})]

    return rewrite


ERROR = {"message": "planted error", "type": "InternalServerError", "param": None, "code": 500}
# How servers say within a stream that they failed: vLLM 0.32 (entrypoints/generate/base/serving.py) goes on to
# `[DONE]`; OpenAI's API ends the stream; "flat" has no envelope.
ERRORS: dict[str, bytes] = {
    "vllm": encoded({"error": ERROR}) + DONE,
    "openai": encoded({"error": {**ERROR, "type": "server_error", "code": None}}),
    "flat": encoded({"object": "error", **ERROR}) + DONE,
}


def broken_off(shape: str) -> Rewrite:
    """An error instead of the second piece of text, and nothing after it."""
    return _from_second_text_on([ERRORS[shape]], then_ends=True)


def not_json(value: None) -> Rewrite:
    """The second piece of text is no JSON; all else is as it should be."""
    return _from_second_text_on([NOT_JSON], then_ends=False)


def _from_second_text_on(instead: list[bytes], *, then_ends: bool) -> Rewrite:
    seen = 0

    def rewrite(event: Event) -> list[bytes]:
        nonlocal seen
        seen += bool(event.text)
        if event.text and seen == 2:
            return instead
        return [] if then_ends and seen > 1 else [event.raw]

    return rewrite


def _event(raw: bytes) -> Event:
    return Event(raw, None if raw == DONE else json.loads(raw[len(DATA) :]))


def _text(choice: dict[str, Any]) -> str:
    return choice.get("text") or (choice.get("delta") or {}).get("content") or ""


def _finish(body: dict[str, Any]) -> bool:
    return any(choice.get("finish_reason") for choice in body.get("choices") or ())


def _with_text(body: dict[str, Any], text: str) -> dict[str, Any]:
    first, *_ = body["choices"]
    changed = {**first, "text": text} if "text" in first else {**first, "delta": {**first["delta"], "content": text}}
    return {**body, "choices": [changed]}


def _as_delta(choice: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    kept = {key: part for key, part in choice.items() if key not in ("text", "delta")}
    return {**kept, "delta": fields}
