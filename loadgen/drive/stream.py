"""What the events of an OpenAI-compatible stream say: when content came, how much was counted, how it ended.

Every event is decoded into the few fields that matter (msgspec, about 0.3 µs), which costs less than any test that
would avoid it and cannot be fooled by spacing, ordering or escapes.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from loadgen.drive.sse import Decoder

# What came, in order: the instant of an arrival, then the pieces of body that it brought, if any. One flat list per
# stream, because every further object that an arrival has to touch is one more wait for memory.
Recording = list[float | bytes]

DONE = b"[DONE]"
LF, CR = b"\n\r"
EXCERPT_BYTES = 200
MOST_TOKENS = 10_000_000


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct, gc=False):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    message: str | None = None


_decode = msgspec.json.Decoder(_Event).decode


class Reading:
    """What has been understood of one stream so far.

    `events_s`: the arrival of each event that carries content, reasoning or tool-call text; events with a role, usage
    or nothing alone do not count. A count that cannot be is None: no tokens in a prompt, none of output where text has
    come (servers and proxies report them where they do not count). `error`: what the server said went wrong after it
    had answered 200. `malformed`: the first event that is no JSON object. Nothing after `[DONE]` is looked at.
    """

    __slots__ = (
        "_decoder",
        "_digest",
        "_instant",
        "_output_tokens",
        "cached_tokens",
        "done",
        "error",
        "events_s",
        "finish_reason",
        "malformed",
        "prompt_tokens",
    )

    def __init__(self) -> None:
        self.events_s: list[float] = []
        self.prompt_tokens: int | None = None
        self._output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.finish_reason: str | None = None
        self.done = False
        self.error: str | None = None
        self.malformed: str | None = None
        self._instant = 0.0
        self._decoder = Decoder()
        self._digest: hashlib.blake2b | None = None

    @property
    def output_tokens(self) -> int | None:
        """As the server counted."""
        return None if self._output_tokens == 0 and self.events_s else self._output_tokens

    def take(self, part: Recording) -> None:
        """Reads the next part of the recording; it may be cut anywhere."""
        self._take(self._events(part))

    def finish(self) -> None:
        """Reads what is left when the whole body has been taken."""
        self._take(self._parsed(self._decoder.rest()))

    def text_digest(self) -> str | None:
        """16 hex digits that are equal for equal text; None if there was no text."""
        return None if self._digest is None else self._digest.hexdigest()

    def _events(self, part: Recording) -> Iterator[_Event]:
        plain = self._decoder.settled and not self.done
        for item in part:
            if isinstance(item, float):
                self._instant = item
                continue
            # Nearly every piece is exactly one event of one line. One JSON object between its marks proves it, if no
            # line ends within (JSON takes that for a space). Everything else takes the long way.
            if plain and item.startswith(b"data: {") and item.endswith(b"}\n\n"):
                data = item[6:-2]
                if LF not in data and CR not in data:
                    try:
                        yield _decode(data)
                    except (msgspec.DecodeError, RecursionError):
                        pass
                    else:
                        continue
            yield from self._parsed(self._decoder.feed(item))
            plain = self._decoder.settled and not self.done

    def _parsed(self, datas: Iterable[bytes]) -> Iterator[_Event]:
        for data in datas:
            if self.done:
                return
            try:
                yield _decode(data)
            except (msgspec.DecodeError, RecursionError):
                if (event := self._unusual(data)) is not None:
                    yield event

    def _unusual(self, data: bytes) -> _Event | None:
        """What is no event of the usual types: the end mark, an unusual event, or garbage."""
        if data.strip() == DONE:
            self.done = True
            return None
        event = _loosely(data) if data else _Event()
        if event is None and self.malformed is None:
            self.malformed = f"event is no JSON object: {data[:EXCERPT_BYTES].decode('utf-8', 'replace')}"
        return event

    def _take(self, events: Iterable[_Event]) -> None:
        texts: list[str] = []
        for event in events:
            before = len(texts)
            for choice in event.choices or ():
                if text := choice.text or (choice.delta is not None and _delta_text(choice.delta)):
                    texts.append(text)
                if choice.finish_reason is not None:
                    self.finish_reason = choice.finish_reason
            if len(texts) > before:
                self.events_s.append(self._instant)
            if event.usage is not None or event.error is not None or event.message is not None:
                self._take_rare(event)
        if texts:
            self._digest = self._digest or hashlib.blake2b(digest_size=8)
            self._digest.update("".join(texts).encode("utf-8", "surrogatepass"))

    def _take_rare(self, event: _Event) -> None:
        usage = event.usage
        if usage is not None:
            self.prompt_tokens = _plausible(usage.prompt_tokens) or None
            self._output_tokens = _plausible(usage.completion_tokens)
            if usage.prompt_tokens_details is not None:
                self.cached_tokens = _plausible(usage.prompt_tokens_details.cached_tokens)
        if (event.error is not None or event.message is not None) and self.error is None:
            self.error = _said(event)


def _plausible(count: int | None) -> int | None:
    """A count that a request can have had: analysis makes arrays of this length."""
    return count if count is not None and 0 <= count <= MOST_TOKENS else None


def _delta_text(delta: _Delta) -> str | None:
    text = delta.content or delta.reasoning_content or delta.reasoning
    if text or not delta.tool_calls:
        return text
    functions = [call.function for call in delta.tool_calls if call.function is not None]
    return "".join((function.name or "") + (function.arguments or "") for function in functions)


def _loosely(data: bytes) -> _Event | None:
    """An event whose fields are not of the usual types (content as a list of parts, a number as text); None if `data`
    is no JSON object, or too deep a one. What cannot be understood is left out."""
    try:
        event = msgspec.json.decode(data)
        return _loose_event(event) if isinstance(event, dict) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _loose_event(event: dict[str, Any]) -> _Event:
    return _Event(
        choices=[_loose_choice(choice) for choice in _list(event.get("choices")) if isinstance(choice, dict)],
        usage=_loose_usage(event.get("usage")),
        error=event.get("error"),
        message=_text(event.get("message")),
    )


def _loose_choice(choice: dict[str, Any]) -> _Choice:
    given = choice.get("delta")
    delta = None
    if isinstance(given, dict):
        delta = _Delta(
            content=_text(given.get("content")),
            reasoning_content=_text(given.get("reasoning_content")),
            reasoning=_text(given.get("reasoning")),
        )
        functions = [call.get("function") for call in _list(given.get("tool_calls")) if isinstance(call, dict)]
        delta.tool_calls = [
            _ToolCall(function=_Function(name=_text(made.get("name")), arguments=_text(made.get("arguments"))))
            for made in functions
            if isinstance(made, dict)
        ]
    finish = choice.get("finish_reason")
    return _Choice(text=_text(choice.get("text")), delta=delta, finish_reason=None if finish is None else str(finish))


def _loose_usage(usage: object) -> _Usage | None:
    if not isinstance(usage, dict):
        return None
    try:
        return msgspec.convert(usage, _Usage, strict=False)
    except msgspec.ValidationError:
        return None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str | None:
    """Text as it is, the texts of a list of parts joined, a structure (tool arguments) as JSON; else None."""
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, list):
        parts = [part.get("text", part.get("thinking")) if isinstance(part, dict) else part for part in value]
        return "".join(_text(part) or "" for part in parts)
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else None


def _said(event: _Event) -> str:
    """The server's own words about an error."""
    error = event.error
    if isinstance(error, dict):
        error = error.get("message") or msgspec.json.encode(error).decode()
    return str(error or event.message or "an error without a message")
