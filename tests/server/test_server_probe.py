import asyncio

import httpx
import pytest

from loadgen.errors import ServerError, UserError
from loadgen.server.address import is_loopback, server_root
from loadgen.server.probe import check

MODELS = {"data": [{"id": "tiny", "max_model_len": 2048, "parent": None}, {"id": "adapter", "parent": "tiny"}]}


def probe(answer, *, model=None, need_context=None, url="http://x:1"):
    def handler(request):
        if isinstance(answer, Exception):
            raise answer
        assert request.url.path == "/v1/models"
        return answer

    return asyncio.run(
        check(url, model=model, need_context=need_context, headers={}, transport=httpx.MockTransport(handler))
    )


def test_the_only_whole_model_is_taken():
    found = probe(httpx.Response(200, json=MODELS), need_context=2048)
    assert (found.model, found.max_model_len) == ("tiny", 2048)


def test_a_named_model_and_no_told_context():
    found = probe(httpx.Response(200, json=MODELS), model="adapter", need_context=10**9)
    assert (found.model, found.max_model_len) == ("adapter", None)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.ConnectError("Connection refused"), "nothing answers there (Connection refused)"),
        (httpx.ReadTimeout("slow"), "no answer within"),
        (httpx.Response(200, html="<html>hi</html>"), "not an OpenAI-compatible LLM server"),
        (httpx.Response(404, text="no"), "HTTP 404"),
        (httpx.Response(302, headers={"location": "http:x"}), "nothing answers there (redirects to what is no URL"),
        (httpx.Response(200, headers={"content-type": b"text/\x85"}, text="x"), "answered HTTP 200, text/"),
        (httpx.Response(200, json=[1]), "not an OpenAI-compatible LLM server"),
        (httpx.Response(200, json={"data": []}), "no model loaded"),
        (httpx.Response(200, json={"data": [{"id": 7}, {"id": {"a": 1}}, None]}), "no model loaded"),
        (httpx.Response(200, text='{"data":' + "[" * 5000), "not an OpenAI-compatible LLM server"),
    ],
)
def test_what_is_no_llm_server(answer, said):
    with pytest.raises(ServerError) as failure:
        probe(answer)
    assert said in str(failure.value)
    assert len(str(failure.value).splitlines()) == 1
    assert failure.value.exit_code == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "tinny"}, "no model tinny; did you mean tiny?"),
        ({"model": "qqq"}, "no model qqq; it serves tiny, adapter"),
        ({"need_context": 2049}, "needs 2,049 tokens of context and tiny takes 2,048"),
    ],
)
def test_what_the_user_can_mend(options, said):
    with pytest.raises(UserError) as failure:
        probe(httpx.Response(200, json=MODELS), **options)
    assert said in str(failure.value)
    assert len(failure.value.complaints) == 1


def test_several_models_want_a_choice():
    two = {"data": [{"id": "a"}, {"id": "b"}]}
    with pytest.raises(UserError, match="choose one with --model: a, b"):
        probe(httpx.Response(200, json=two))


def test_a_server_that_wants_a_key():
    with pytest.raises(UserError, match="HTTP 401"):
        probe(httpx.Response(401))


@pytest.mark.parametrize("url", ["http://h:8000", "http://h:8000/", "http://h:8000/v1", "http://h:8000/v1/"])
def test_one_root_however_it_is_written(url):
    assert server_root(url) == "http://h:8000"


@pytest.mark.parametrize("url", ["h:8000", "localhost", "ftp://h", "http://"])
def test_what_is_no_url(url):
    with pytest.raises(UserError, match="write it like"):
        server_root(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [("http://127.0.0.1:1", True), ("http://localhost:1/v1", True), ("http://[::1]:1", True), ("http://h:1", False)],
)
def test_what_is_this_machine(url, expected):
    assert is_loopback(url) is expected
