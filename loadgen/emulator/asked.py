"""What a request asks for: a JSON body -> `Asked`, or the refusal that vLLM would answer with.

Fields that are not here are ignored, as vLLM ignores fields that it does not know; `stop`, `logprobs`, `tools` and
`echo` are among them. The wording of refusals follows vllm/entrypoints (0.32) and, for a context that is too long,
the releases before it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from loadgen.emulator.text import Answer, Tokenizer

T = TypeVar("T", bound=msgspec.Struct)

MAX_TOKENS = 16  # of a completion that sets none; a chat gets what the context has left


class Refusal(Exception):
    """A request that is not served; `kind` is the error object's type."""

    def __init__(self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None):
        super().__init__(message)
        self.message, self.status, self.kind, self.param = message, status, kind, param

    def body(self) -> bytes:
        """The error object as vLLM sends it."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return msgspec.json.encode({"error": error})


class StreamOptions(msgspec.Struct, gc=False):
    """Which usage counts a stream carries."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Message(msgspec.Struct, gc=False):
    """One message of a chat; content is text, or parts of which the texts count."""

    role: str
    content: str | list[Any] | None = None


class Body(msgspec.Struct, gc=False):
    """The fields that completions and chats share. Sampling fields are checked and change nothing."""

    model: str | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    cache_salt: str | None = None


class CompletionBody(Body, gc=False):
    """POST /v1/completions."""

    prompt: str | list[Any] | None = None


class ChatBody(Body, gc=False):
    """POST /v1/chat/completions."""

    messages: list[Message] = []
    max_completion_tokens: int | None = None


class TokenizeBody(msgspec.Struct, gc=False):
    """POST /tokenize: a prompt, or a chat's messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(msgspec.Struct, gc=False):
    """POST /detokenize."""

    tokens: list[int]
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One accepted request: exactly `output_tokens` tokens will be made unless the client leaves."""

    chat: bool
    prompt: Sequence[int]
    answer: Answer
    output_tokens: int
    finish_reason: Literal["length", "stop"]
    stream: bool
    usage_last: bool
    usage_always: bool
    salt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads requests for one served model."""

    tokenizer: Tokenizer
    served_name: str
    max_model_len: int

    def completion(self, content: bytes, content_type: str) -> Asked:
        """Raises Refusal."""
        body = parsed(content, content_type, CompletionBody)
        self.check_model(body.model)
        limit = MAX_TOKENS if body.max_tokens is None else body.max_tokens
        return self._accepted(body, self._prompt(body.prompt), limit, chat=False)

    def chat(self, content: bytes, content_type: str) -> Asked:
        """Raises Refusal."""
        body = parsed(content, content_type, ChatBody)
        self.check_model(body.model)
        if not body.messages:
            raise Refusal("messages: a chat needs at least one message", param="messages")
        prompt = self.messages(body.messages)
        asked = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
        limit = max(1, self.max_model_len - len(prompt)) if asked is None else asked
        return self._accepted(body, prompt, limit, chat=True)

    def messages(self, messages: Sequence[Message]) -> list[int]:
        """The ids of a chat."""
        return self.tokenizer.chat((message.role, _content(message.content)) for message in messages)

    def check_model(self, name: str | None) -> None:
        """Raises Refusal (404) for a model that is not the one served; no name is that one."""
        if name and name != self.served_name:
            raise Refusal(f"The model `{name}` does not exist.", status=404, kind="NotFoundError", param="model")

    def _accepted(self, body: Body, prompt: list[int], limit: int, *, chat: bool) -> Asked:
        _check_numbers(body, limit)
        self._check_length(len(prompt), limit)
        answer = Answer(prompt, vocabulary=self.tokenizer.vocabulary)
        by_itself = limit if body.ignore_eos else max(answer.tokens_to_end, body.min_tokens)
        options = body.stream_options or StreamOptions()
        return Asked(
            chat=chat,
            prompt=prompt,
            answer=answer,
            output_tokens=min(limit, by_itself),
            finish_reason="stop" if by_itself < limit else "length",
            stream=bool(body.stream),
            usage_last=bool(options.include_usage),
            usage_always=bool(options.include_usage and options.continuous_usage_stats),
            salt=body.cache_salt or "",
        )

    def _prompt(self, prompt: str | list[Any] | None) -> list[int]:
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
            prompt = prompt[0]
        if prompt is None or prompt == []:
            raise Refusal("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
        if isinstance(prompt, str):
            ids = self.tokenizer.encode(prompt)
            if not ids:
                raise Refusal("The decoder prompt cannot be empty")
            return ids
        if set(map(type, prompt)) != {int}:
            raise Refusal("prompt: should be one text or one list of token ids", param="prompt")
        if (unknown := self.tokenizer.known(prompt)) is not None:
            raise Refusal(f"Token id {unknown} is out of vocabulary", param="prompt")
        return prompt

    def _check_length(self, prompt_tokens: int, limit: int) -> None:
        longest = self.max_model_len
        if prompt_tokens >= longest:
            raise Refusal(
                f"This model's maximum context length is {longest} tokens. However, your prompt contains "
                f"{prompt_tokens} input tokens, which exceeds this limit even without any output tokens. "
                "Please reduce the length of the input prompt.",
                param="input_tokens",
            )
        if prompt_tokens + limit > longest:
            raise Refusal(
                f"This model's maximum context length is {longest} tokens. However, you requested {limit} output "
                f"tokens and your prompt contains {prompt_tokens} input tokens, for a total of "
                f"{prompt_tokens + limit} tokens. Please reduce the length of the input prompt or the number of "
                "requested output tokens.",
                param="max_tokens",
            )


def parsed(content: bytes, content_type: str, kind: type[T]) -> T:
    """The body as `kind`. Raises Refusal in the words of a validation error."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise _invalid("Unsupported Media Type: Only 'application/json' is allowed", None)
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        where = re.sub(r"\[(\d+)\]", r".\1", place.rstrip("`")).replace("[...]", "")
        raise _invalid(message, f"body{where}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise _invalid(f"JSON decode error: {error}", "body") from error


def _invalid(message: str, param: str | None) -> Refusal:
    place = f"{param}: " if param else ""
    return Refusal(f"1 validation error:\n  {place}{message}", kind="Bad Request", param=param)


def _check_numbers(body: Body, limit: int) -> None:
    if body.stream_options is not None and not body.stream:
        raise Refusal("Stream options can only be defined when `stream=True`.", param="stream_options")
    if body.n not in (None, 1):
        raise Refusal(f"n: {body.n}: the emulator gives one answer to a request", param="n")
    if limit < 1:
        raise Refusal(f"max_tokens must be at least 1, got {limit}.", param="max_tokens")
    if body.min_tokens < 0:
        raise Refusal(f"min_tokens must be greater than or equal to 0, got {body.min_tokens}.", param="min_tokens")
    if body.min_tokens > limit:
        raise Refusal(
            f"min_tokens must be less than or equal to max_tokens={limit}, got {body.min_tokens}.", param="min_tokens"
        )
    if body.temperature is not None and body.temperature < 0:
        raise Refusal(f"temperature must be non-negative, got {body.temperature}.", param="temperature")
    if body.top_p is not None and not 0 < body.top_p <= 1:
        raise Refusal(f"top_p must be in (0, 1], got {body.top_p}.", param="top_p")


def _content(content: str | list[Any] | None) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content)
    return content or ""
