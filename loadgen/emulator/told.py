"""The bodies of answers, as vLLM writes them (vllm/entrypoints/openai, 0.32.0): whole, and event by event."""

import re
import time
from dataclasses import dataclass, field
from uuid import uuid4

import msgspec

from loadgen.emulator.asked import Asked
from loadgen.emulator.text import Tokenizer

DONE = b"data: [DONE]\n\n"


@dataclass(slots=True, kw_only=True)
class Teller:
    """Writes the answer to one request. `cached_tokens`: None where the server keeps no prefixes."""

    asked: Asked
    tokenizer: Tokenizer
    model: str
    id: str
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def _object(self) -> str:
        return "chat.completion.chunk" if self.asked.chat else "text_completion"

    def first(self) -> bytes | None:
        """A chat's first event, which carries the role alone."""
        if not self.asked.chat:
            return None
        return self._event('{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}', 0)

    def token(self, number: int) -> bytes:
        """The event of output token `number`, from 0."""
        asked = self.asked
        word = self.tokenizer.word(asked.answer.token(number))  # letters alone: nothing to escape
        last = number + 1 == asked.output_tokens
        reason = f'"{asked.finish_reason}"' if last else "null"
        if asked.chat:
            choice = f'{{"index":0,"delta":{{"content":" {word}"}},"finish_reason":{reason}'
        else:
            choice = f'{{"index":0,"text":" {word}","logprobs":null,"finish_reason":{reason}'
        stop = ',"stop_reason":null' if last or not asked.chat else ""
        return self._event(f"{choice}{stop}}}", number + 1)

    def usage(self, cached_tokens: int | None) -> bytes:
        """The last event before the end mark: no choice, all counts."""
        counts = msgspec.json.encode(self._counts(self.asked.output_tokens, cached_tokens)).decode()
        return f'{self._head()},"choices":[],"usage":{counts}}}\n\n'.encode()

    def whole(self, cached_tokens: int | None) -> bytes:
        """The answer in one piece."""
        asked = self.asked
        words = map(self.tokenizer.word, map(asked.answer.token, range(asked.output_tokens)))
        text = "".join(f" {word}" for word in words)
        told = {"message": {"role": "assistant", "content": text}} if asked.chat else {"text": text}
        choice = {"index": 0, **told, "logprobs": None, "finish_reason": asked.finish_reason, "stop_reason": None}
        return msgspec.json.encode(
            {
                "id": self.id,
                "object": "chat.completion" if asked.chat else "text_completion",
                "created": self.created,
                "model": self.model,
                "choices": [choice],
                "usage": self._counts(asked.output_tokens, cached_tokens),
            }
        )

    def _event(self, choice: str, made: int) -> bytes:
        usage = ""
        if self.asked.usage_always:
            usage = f',"usage":{msgspec.json.encode(self._counts(made, None)).decode()}'
        return f'{self._head()},"choices":[{choice}]{usage}}}\n\n'.encode()

    def _head(self) -> str:
        model = msgspec.json.encode(self.model).decode()
        return f'data: {{"id":"{self.id}","object":"{self._object}","created":{self.created},"model":{model}'

    def _counts(self, made: int, cached_tokens: int | None) -> dict[str, object]:
        prompt = len(self.asked.prompt)
        counts: dict[str, object] = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + made,
            "completion_tokens": made,
        }
        if cached_tokens is not None:
            counts["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
        return counts


def new_id(*, chat: bool, given: str | None) -> str:
    """The id of an answer; X-Request-Id of the request goes into it, its plain characters at least."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "", given or "")[:128]
    return f"{'chatcmpl' if chat else 'cmpl'}-{plain or uuid4().hex}"
