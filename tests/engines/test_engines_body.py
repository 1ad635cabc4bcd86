import json

import pytest

from loadgen.engines import openai, vllm
from loadgen.engines.body import request_body


def test_token_ids_to_vllm_are_sent_whole_with_a_forced_length():
    ids = list(range(1000))
    body = json.loads(
        request_body(endpoint="completions", model="tiny", prompt=ids, output_tokens=128, engine=vllm.ENGINE)
    )
    assert body == {
        "model": "tiny",
        "prompt": ids,
        "max_tokens": 128,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "min_tokens": 128,
        "skip_special_tokens": False,
    }


def test_a_chat_is_one_user_message():
    body = json.loads(
        request_body(endpoint="chat", model="m", prompt="hello there", output_tokens=7, engine=vllm.ENGINE)
    )
    assert body["messages"] == [{"role": "user", "content": "hello there"}]
    assert body["max_tokens"] == 7
    assert "prompt" not in body


def test_an_unknown_server_gets_no_field_that_it_may_refuse():
    body = json.loads(
        request_body(endpoint="completions", model="m", prompt="a b", output_tokens=7, engine=openai.ENGINE)
    )
    assert not {"ignore_eos", "min_tokens", "cache_salt"} & set(body)
    assert body["max_tokens"] == 7


@pytest.mark.parametrize(("endpoint", "engine"), [("chat", vllm.ENGINE), ("completions", openai.ENGINE)])
def test_token_ids_where_they_cannot_go_are_refused(endpoint, engine):
    with pytest.raises(ValueError, match="token ids"):
        request_body(endpoint=endpoint, model="m", prompt=[1, 2], output_tokens=7, engine=engine)
