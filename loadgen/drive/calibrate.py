"""Asks a server what prompts can be made of so that their token counts are exact: token ids, else words.

No tokenizer is needed: the server's own counts (`/tokenize` where it is, `usage.prompt_tokens` of a one-token answer)
tell, and the result is checked on two long random prompts against `usage`, which is what the measurement goes by.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import httpx
import msgspec

from loadgen.drive.client import PATHS, Endpoint, request_headers, server_root
from loadgen.drive.failures import one_line, secrets_of
from loadgen.drive.words import WORDS
from loadgen.errors import ServerError
from loadgen.records import Vocabulary

# Ids below 1,000 are control tokens in some vocabularies (Mistral's newer ones), and ids that a vocabulary lacks can
# crash a server that does not check: real vocabularies have 32,000 entries and more, so this range is safe for all.
LOW, HIGH = 1000, 2048
LOW_OF_A_SMALL_VOCABULARY = 100
FEWEST_IDS = 64
FEWEST_WORDS = 16
ENOUGH_WORDS = 64
CHECK_TOKENS = 256
EXCERPT_BYTES = 65_536
MOST_BYTES = 2**20  # of an answer with one token
REFUSED = (400, 422, 500, 501)  # a list where text is expected breaks some servers


T = TypeVar("T")


class _Refused(Exception):
    """The server takes no such prompt."""


async def vocabulary(
    *,
    base_url: str,
    model: str,
    endpoint: Endpoint,
    headers: Mapping[str, str] | None = None,
    token_ids: bool = True,
    check_tokens: int = CHECK_TOKENS,
    timeout_s: float = 120.0,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Vocabulary:
    """What exact prompts for this server, model and endpoint are made of.

    `token_ids=False`: the engine is known not to take them. `check_tokens`: length of the prompts that are checked;
    less than the model's context. `transport` replaces httpx's own, which honours the proxy variables. Raises
    ServerError if the server cannot be asked or no exact prompt can be made; it says what was counted instead.
    """
    async with httpx.AsyncClient(
        headers=request_headers({"accept": "application/json", **(headers or {})}),
        timeout=timeout_s,
        transport=transport,
    ) as http:
        counter = _Counter(http, server_root(base_url), model, endpoint, secrets_of(headers or {}))
        if token_ids and endpoint == "completions":
            found = await _ids(counter, check_tokens)
            if found is not None:
                return found
        return await _words(counter, check_tokens)


class _Counter:
    """Counts the tokens of prompts by asking the server."""

    def __init__(
        self, http: httpx.AsyncClient, root: str, model: str, endpoint: Endpoint, secrets: tuple[str, ...]
    ) -> None:
        self._http = http
        self._root = root
        self._model = model
        self._endpoint: Endpoint = endpoint
        self._secrets = secrets
        self._tokenizes = True

    @property
    def where(self) -> str:
        """The server and its endpoint, for messages."""
        return f"{self._root}{PATHS[self._endpoint]}"

    async def used(self, prompt: str | Sequence[int]) -> int:
        """Prompt tokens that the server counts when it answers with one token. Raises _Refused, ServerError."""
        body: dict[str, Any] = {"model": self._model, "max_tokens": 1, "temperature": 0}
        answer = await self._ask(PATHS[self._endpoint], {**body, **self._asked(prompt)})
        usage = answer.get("usage")
        count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        if not isinstance(count, int):
            raise ServerError(f"{self.where}: reports no usage.prompt_tokens, so prompts cannot be made exact")
        return count

    async def count(self, text: str) -> int:
        """Prompt tokens of `text`, by `/tokenize` where that counts as the endpoint does, else as `used`."""
        if self._tokenizes:
            try:
                answer = await self._ask("/tokenize", {"model": self._model, **self._asked(text)})
                if isinstance(answer.get("count"), int):
                    return int(answer["count"])
            except (_Refused, ServerError):
                pass
            self._tokenizes = False
        return await self.used(text)

    def _asked(self, prompt: str | Sequence[int]) -> dict[str, Any]:
        if self._endpoint == "chat":
            return {"messages": [{"role": "user", "content": prompt}]}
        return {"prompt": prompt}

    async def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            status, content = await self._posted(self._root + path, body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:  # no URL: where it redirects to
            raise ServerError(f"{self._root}: {one_line(str(error) or type(error).__name__, self._secrets)}") from error
        said = one_line(content[:EXCERPT_BYTES].decode("utf-8", "replace"), self._secrets)
        if status in REFUSED:
            raise _Refused(said)
        if status != 200:
            raise ServerError(f"{self._root}{path}: HTTP {status} for model {self._model}: {said}")
        try:
            answer = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ServerError(f"{self._root}{path}: the answer is not JSON; is this an LLM server?") from error
        return answer if isinstance(answer, dict) else {}

    async def _posted(self, url: str, body: dict[str, Any]) -> tuple[int, bytes]:
        """Status and body of the answer, as it came: what is encoded or endless is refused."""
        content = bytearray()
        async with self._http.stream("POST", url, json=body) as response:
            encoding = response.headers.get("content-encoding", "identity")
            if encoding != "identity":
                raise httpx.DecodingError(f"content-encoding {encoding} although identity was asked for")
            async for part in response.aiter_bytes():
                content += part
                if len(content) > MOST_BYTES:
                    raise httpx.DecodingError(f"the answer is longer than {MOST_BYTES // 2**20} MiB")
        return response.status_code, bytes(content)


async def _ids(counter: _Counter, check_tokens: int) -> Vocabulary | None:
    """A range of token ids that the server takes and counts one for one; None if there is none."""
    low = LOW_OF_A_SMALL_VOCABULARY
    if not await _counts_ids(counter, [low, low + 1, low + 2, low + 3]):
        return None
    high = await _end_of_ids(counter, low + 3)
    if high >= LOW + FEWEST_IDS:
        low = LOW
    if high - low < FEWEST_IDS:
        return None
    every = list(range(low, high))
    parts = [every[at : at + check_tokens] for at in range(0, len(every), check_tokens)]
    for part in (*parts, *_random_picks(every, check_tokens)):
        if not await _counts_ids(counter, part):
            return None
    return Vocabulary(kind="token_ids", low=low, high=high)


async def _end_of_ids(counter: _Counter, taken: int) -> int:
    """The first id that is refused, by halving between `taken` and HIGH; HIGH if none is."""
    if await _counts_ids(counter, [HIGH - 1]):
        return HIGH
    refused = HIGH - 1
    while refused - taken > 1:
        middle = (taken + refused) // 2
        if await _counts_ids(counter, [middle]):
            taken = middle
        else:
            refused = middle
    return refused


async def _counts_ids(counter: _Counter, ids: Sequence[int]) -> bool:
    try:
        return await counter.used(ids) == len(ids)
    except _Refused:
        return False


async def _words(counter: _Counter, check_tokens: int) -> Vocabulary:
    """Words that are one token each. Raises ServerError if there are too few, or the counts do not add up."""
    try:
        anchor, overhead = await _anchor(counter)
        words: list[str] = []
        for at in range(0, len(WORDS), FEWEST_WORDS):
            for word in await _single(counter, anchor, WORDS[at : at + FEWEST_WORDS], overhead):
                # " word" is one token; "word", which begins a prompt, may be another matter
                if await counter.count(f"{word} {anchor}") == 2 + overhead:
                    words.append(word)
            if len(words) >= ENOUGH_WORDS:
                break
        if len(words) < FEWEST_WORDS:
            raise ServerError(
                f"{counter.where}: only {len(words)} of {len(WORDS)} common words are one token in its vocabulary, "
                f"{FEWEST_WORDS} are needed: exact prompts cannot be made of words"
            )
        return await _checked(counter, words, check_tokens)
    except _Refused as refused:
        raise ServerError(f"{counter.where}: refuses a prompt of plain words: {refused}") from refused


async def _anchor(counter: _Counter) -> tuple[str, int]:
    """A word that is one token, and the tokens of a prompt besides its words (chat template, beginning of text).

    A word may be more than one token where a prompt begins with it; of several words the fewest tokens tell.
    """
    found: list[tuple[int, str]] = []
    for word in WORDS[:FEWEST_WORDS]:
        once = await counter.count(word)
        if await counter.count(f"{word} {word}") - once == 1 and await counter.count(" ".join([word] * 9)) - once == 8:
            found.append((once - 1, word))
    if not found:
        raise ServerError(f"{counter.where}: none of the words {', '.join(WORDS[:FEWEST_WORDS])} is one token")
    overhead, word = min(found)
    return word, overhead


async def _single(counter: _Counter, anchor: str, words: tuple[str, ...], overhead: int) -> list[str]:
    """Those of `words` that are one token each after a space: all if they add up, else found by halving."""
    said = [anchor, *words * (4 if len(words) == 1 else 1)]
    if await counter.count(" ".join(said)) == len(said) + overhead:
        return list(words)
    if len(words) == 1:
        return []
    half = len(words) // 2
    return [
        *await _single(counter, anchor, words[:half], overhead),
        *await _single(counter, anchor, words[half:], overhead),
    ]


async def _checked(counter: _Counter, words: Sequence[str], check_tokens: int) -> Vocabulary:
    """The vocabulary, when two long random prompts of these words count as they should by the endpoint's own usage."""
    overhead = await counter.used(words[0]) - 1
    for picked in _random_picks(words, check_tokens):
        expected = len(picked) + overhead
        counted = await counter.used(" ".join(picked))
        if counted != expected:
            raise ServerError(
                f"{counter.where}: prompts cannot be made exact: {len(picked)} words with {overhead} tokens around "
                f"them counted {counted} tokens instead of {expected}"
            )
    return Vocabulary(kind="words", words=tuple(words), overhead_tokens=overhead)


def _random_picks(of: Sequence[T], count: int) -> tuple[list[T], list[T]]:
    source = random.Random(0)
    return source.choices(of, k=count), source.choices(of, k=count)
