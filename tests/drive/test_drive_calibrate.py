"""What prompts are made of, asked of servers with all the habits that are known."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from loadgen.drive.calibrate import vocabulary
from loadgen.drive.words import WORDS
from loadgen.errors import ServerError
from loadgen.records import Vocabulary

KEY = "sk-secret99"


class Tokenizing:
    """A server with a vocabulary: words of `whole` are one token, others one per letter; ids below `size`."""

    def __init__(
        self,
        *,
        size: int = 32000,
        ids: bool = True,
        whole: Callable[[str], bool] = lambda word: True,
        whole_first: Callable[[str], bool] | None = None,
        around: int = 0,
        tokenize: bool = False,
        context: int = 4096,
        merges: bool = False,
    ) -> None:
        self.size, self.ids, self.whole, self.around = size, ids, whole, around
        self.whole_first = whole_first or whole
        self.tokenize, self.context, self.merges = tokenize, context, merges
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        body = json.loads(request.content)
        prompt = body["messages"][0]["content"] if "messages" in body else body["prompt"]
        if request.url.path == "/tokenize":
            return httpx.Response(200, json={"count": self.count(prompt)}) if self.tokenize else httpx.Response(404)
        if isinstance(prompt, list):
            if not self.ids:
                return httpx.Response(400, json={"error": "prompt must be a string."})
            if max(prompt) >= self.size:
                return httpx.Response(400, json={"error": "Token id is out of vocabulary"})
            count = len(prompt) + self.around
        else:
            count = self.count(prompt)
        if count + body["max_tokens"] > self.context:
            return httpx.Response(400, json={"error": f"longer than {self.context}"})
        return httpx.Response(200, json={"usage": {"prompt_tokens": count, "completion_tokens": 1}})

    def count(self, text: str) -> int:
        words = text.split()
        extra = -1 if self.merges and len(words) > 100 else 0
        first = 1 if self.whole_first(words[0]) else len(words[0])
        return first + sum(1 if self.whole(word) else len(word) for word in words[1:]) + self.around + extra


def ask(server: Callable[[httpx.Request], httpx.Response], endpoint: Any = "completions", **options: Any) -> Vocabulary:
    return asyncio.run(
        vocabulary(
            base_url="http://srv:8000/v1",
            model="m",
            endpoint=endpoint,
            headers={"authorization": f"Bearer {KEY}"},
            transport=httpx.MockTransport(server),
            **options,
        )
    )


def test_token_ids_where_they_are_taken() -> None:
    server = Tokenizing()
    assert ask(server) == Vocabulary(kind="token_ids", low=1000, high=2048)
    assert set(server.asked) == {"/v1/completions"}
    assert len(server.asked) < 12


@pytest.mark.parametrize(
    ("size", "low", "high"), [(2047, 1000, 2047), (1500, 1000, 1500), (1063, 100, 1063), (300, 100, 300)]
)
def test_the_end_of_a_small_vocabulary_is_found(size: int, low: int, high: int) -> None:
    assert ask(Tokenizing(size=size)) == Vocabulary(kind="token_ids", low=low, high=high)


@pytest.mark.parametrize("server", [Tokenizing(ids=False), Tokenizing(size=120), Tokenizing(size=50)])
def test_words_where_ids_are_not(server: Tokenizing) -> None:
    found = ask(server)
    assert (found.kind, found.overhead_tokens) == ("words", 0)
    assert len(found.words) >= 16


def test_words_where_ids_do_not_count_one_for_one() -> None:
    found = ask(Tokenizing(around=1))
    assert (found.kind, found.overhead_tokens) == ("words", 1)


def test_words_where_the_engine_is_known_to_take_no_ids() -> None:
    server = Tokenizing()
    assert ask(server, token_ids=False).kind == "words"


def test_words_through_tokenize_are_checked_by_usage() -> None:
    server = Tokenizing(around=10, tokenize=True, whole=lambda word: len(word) != 3)
    found = ask(server, "chat")
    assert (found.kind, found.overhead_tokens) == ("words", 10)
    assert all(len(word) != 3 for word in found.words)
    assert 16 <= len(found.words) == len(set(found.words))
    assert server.asked.count("/v1/chat/completions") == 3


def test_words_must_be_one_token_at_the_beginning_as_well_as_after_a_space() -> None:
    server = Tokenizing(ids=False, whole=lambda word: "o" not in word, whole_first=lambda word: "e" not in word)
    found = ask(server)
    assert all("o" not in word and "e" not in word for word in found.words)
    assert found.overhead_tokens == 0


def test_tokenize_is_asked_once_where_it_is_not() -> None:
    server = Tokenizing(around=10)
    assert ask(server, "chat").overhead_tokens == 10
    assert server.asked.count("/tokenize") == 1


def test_too_few_single_words() -> None:
    with pytest.raises(ServerError, match=f"only 15 of {len(WORDS)} common words"):
        ask(Tokenizing(ids=False, whole=lambda word: word in WORDS[:15]))


def test_no_single_word_at_all() -> None:
    with pytest.raises(ServerError, match=r"none of the words the, of, .* is one token"):
        ask(Tokenizing(ids=False, whole=lambda word: False))


def test_counts_that_do_not_add_up() -> None:
    with pytest.raises(ServerError, match="256 words with 0 tokens around them counted 255 tokens instead of 256"):
        ask(Tokenizing(ids=False, merges=True))


def test_a_context_too_short_for_the_check() -> None:
    with pytest.raises(ServerError, match=r"refuses a prompt of plain words: .*longer than 200"):
        ask(Tokenizing(ids=False, context=200))
    assert ask(Tokenizing(ids=False, context=200), check_tokens=128).kind == "words"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(404, text="no such model"), "HTTP 404 for model m: no such model"),
        (httpx.Response(401, text=f"bad key {KEY}"), r"HTTP 401 for model m: bad key \*\*\*"),
        (httpx.Response(200, text="<html>"), "not JSON; is this an LLM server"),
        (httpx.Response(404, headers={"content-type": "a; charset=base64"}, content=b"no"), "HTTP 404 for model m: no"),
        (httpx.Response(302, headers={"location": "http:x"}), "http://srv:8000: "),
        (httpx.Response(200, content=b"x" * 2**21), "longer than 1 MiB"),
        (httpx.Response(200, json={"choices": []}), "reports no usage.prompt_tokens"),
        (httpx.Response(200, json=[]), "reports no usage.prompt_tokens"),
    ],
)
def test_a_server_that_cannot_be_asked(answer: httpx.Response, said: str) -> None:
    with pytest.raises(ServerError, match=said) as caught:
        ask(lambda _: answer)
    assert KEY not in str(caught.value)


def test_a_server_that_is_not_there() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    with pytest.raises(ServerError, match="http://srv:8000: Connection refused"):
        ask(refuse)
