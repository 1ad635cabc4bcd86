import asyncio

import httpx
import pytest
from emulator_front_cases import STEP_S, arm, events, profile, serving

from loadgen.drive.calibrate import vocabulary
from loadgen.emulator.arm import emulated
from loadgen.emulator.engine import Engine
from loadgen.emulator.text import Answer

JSON = "application/json"


def text_of(told):
    return "".join(
        choice.get("text") or choice["delta"].get("content") or "" for one in told for choice in one["choices"]
    )


def test_a_stream_has_one_event_for_each_token_then_usage_and_the_end_mark():
    async def main(served):
        return await served.completion(max_tokens=5, stream=True, stream_options={"include_usage": True})

    *told, usage, done = events(serving(main))
    assert done == "[DONE]"
    assert len(told) == 5
    assert [one["choices"][0]["finish_reason"] for one in told] == [None] * 4 + ["length"]
    assert {one["object"] for one in told} == {"text_completion"}
    assert len({one["id"] for one in told}) == 1
    assert all(one["choices"][0]["text"][1:].isalpha() for one in told)
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}


def test_each_event_is_one_message_at_the_end_of_its_step():
    async def main(served):
        loop = asyncio.get_running_loop()
        sent = []

        async def send(message):
            sent.append((loop.time(), message))

        body = b'{"prompt":[100,101],"max_tokens":4,"stream":true}'
        given = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            return given.pop() if given else await asyncio.get_running_loop().create_future()

        scope = {
            **{"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"", "root_path": ""},
            "headers": [(b"content-type", b"application/json")],
        }
        await served.front.app()(scope, receive, send)
        return sent

    sent = serving(main)
    bodies = [(at_s, message) for at_s, message in sent if message["type"] == "http.response.body"]
    assert sent[0][1]["type"] == "http.response.start"
    assert sent[0][0] == 0.0, "the headers do not wait for the first token"
    assert [message["body"].count(b"data: ") for _, message in bodies] == [1, 1, 1, 1, 1, 0]
    assert [at_s for at_s, _ in bodies[:4]] == pytest.approx([STEP_S * step for step in (1, 2, 3, 4)])
    assert [message["more_body"] for _, message in bodies] == [True] * 5 + [False]


def test_a_chat_begins_with_the_role_and_counts_usage_in_every_event():
    async def main(served):
        options = {"include_usage": True, "continuous_usage_stats": True}
        return await served.chat(max_completion_tokens=3, stream=True, stream_options=options)

    first, *told, usage, done = events(serving(main))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [one["usage"]["completion_tokens"] for one in (first, *told, usage)] == [0, 1, 2, 3, 3]
    assert {one["usage"]["prompt_tokens"] for one in (first, *told, usage)} == {7}
    assert told[-1]["choices"][0]["finish_reason"] == "length"
    assert done == "[DONE]"


@pytest.mark.parametrize("kind", ["completion", "chat"])
def test_whole_answers_say_what_streams_say(kind):
    async def main(served):
        ask = getattr(served, kind)
        return await ask(max_tokens=6, ignore_eos=True), await ask(max_tokens=6, stream=True, ignore_eos=True)

    whole, stream = serving(main)
    choice = whole.json()["choices"][0]
    said = choice["text"] if kind == "completion" else choice["message"]["content"]
    assert said == text_of(events(stream)[:-1])
    assert whole.json()["usage"]["completion_tokens"] == 6
    assert choice["finish_reason"] == "length"


def test_arms_say_the_same_and_a_prompt_may_be_text_or_its_ids():
    async def main(served):
        ids = (await served.http.post("/tokenize", json={"prompt": "long ago"})).json()["tokens"]
        answers = [await served.completion(prompt=prompt, max_tokens=9) for prompt in ("long ago", ids, ["long ago"])]
        return [answer.json()["choices"][0]["text"] for answer in answers]

    said = serving(main, arm(kv_cache_dtype="bfloat16")) + serving(main, arm(kv_cache_dtype="fp8"))
    assert len(set(said)) == 1


def test_the_model_ends_by_itself_unless_it_is_told_not_to():
    async def main(served):
        answers = {}
        for name, fields in {
            "alone": {},
            "forced": {"ignore_eos": True},
            "least": {"min_tokens": 400},
        }.items():
            whole = (await served.completion(prompt=[100, 7], max_tokens=400, **fields)).json()
            answers[name] = (whole["usage"]["completion_tokens"], whole["choices"][0]["finish_reason"])
        return answers

    answers = serving(main)
    assert answers["alone"] == (Answer([100, 7], vocabulary=2048).tokens_to_end, "stop")
    assert answers["forced"] == answers["least"] == (400, "length")


REFUSALS = [
    ({"model": "nope"}, 404, "The model `nope` does not exist.", "model"),
    ({"max_tokens": 510}, 400, "maximum context length is 512 tokens. However, you requested 510 output", "max_tokens"),
    ({"prompt": [100] * 512}, 400, "contains 512 input tokens, which exceeds this limit", "input_tokens"),
    ({"prompt": []}, 400, "Either prompt or prompt_embeds must be provided", "prompt"),
    ({"prompt": "  "}, 400, "The decoder prompt cannot be empty", None),
    ({"prompt": [2048]}, 400, "Token id 2048 is out of vocabulary", "prompt"),
    ({"prompt": [-1]}, 400, "Token id -1 is out of vocabulary", "prompt"),
    ({"prompt": [10**30]}, 400, "out of vocabulary", "prompt"),
    ({"prompt": [1, "x"]}, 400, "should be one text or one list of token ids", "prompt"),
    ({"prompt": ["a", "b"]}, 400, "should be one text or one list of token ids", "prompt"),
    ({"max_tokens": 0}, 400, "max_tokens must be at least 1, got 0.", "max_tokens"),
    ({"max_tokens": "4"}, 400, "body.max_tokens: Expected `int | null`, got `str`", "body.max_tokens"),
    ({"min_tokens": 17}, 400, "min_tokens must be less than or equal to max_tokens=16, got 17.", "min_tokens"),
    ({"min_tokens": -1}, 400, "min_tokens must be greater than or equal to 0", "min_tokens"),
    ({"n": 2}, 400, "one answer to a request", "n"),
    ({"temperature": -1}, 400, "temperature must be non-negative", "temperature"),
    ({"top_p": 0}, 400, "top_p must be in (0, 1]", "top_p"),
    ({"stream_options": {"include_usage": True}}, 400, "Stream options can only be defined", "stream_options"),
]


@pytest.mark.parametrize(("body", "status", "message", "param"), REFUSALS)
def test_refusals_are_error_objects_in_vllms_words(body, status, message, param):
    async def main(served):
        return await served.completion(**body)

    response = serving(main)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (status, status, param)
    assert message in error["message"]


def test_what_is_no_request():
    async def main(served):
        post = served.http.post
        return [
            await post("/v1/completions", content=b'{"prompt":', headers={"content-type": "application/json"}),
            await post("/v1/completions", content=b"[" * 5000, headers={"content-type": "application/json"}),
            await post("/v1/completions", content=b"{}", headers={"content-type": "text/plain"}),
            await post("/v1/chat/completions", json={"messages": []}),
            await post("/v1/chat/completions", json={"messages": [{"content": "x"}]}),
            await post("/v1/completions", json={"prompt": "x", "stream_options": {"include_usage": 3}, "stream": True}),
        ]

    for response in serving(main):
        assert response.status_code == 400
        assert response.json()["error"]["code"] == 400


def test_sampling_fields_are_taken_and_unknown_ones_ignored():
    async def main(served):
        fields = {"temperature": 0.7, "top_p": 0.9, "seed": 3, "skip_special_tokens": False, "whatever": [1]}
        return await served.completion(model="toy", max_tokens=1, **fields)

    assert serving(main).status_code == 200


def test_the_other_endpoints():
    async def main(served):
        get, post = served.http.get, served.http.post
        ids = [100, 200, 300]
        prompt = (await post("/detokenize", json={"tokens": ids})).json()["prompt"]
        return {
            "models": (await get("/v1/models")).json(),
            "well": [(await get("/health")).status_code, (await get("/ping")).status_code],
            "version": (await get("/version")).json(),
            "tokens": (await post("/tokenize", json={"prompt": prompt, "return_token_strs": True})).json(),
            "chat": (await post("/tokenize", json={"messages": [{"role": "user", "content": "a b"}]})).json(),
            "refused": [
                (await post("/tokenize", json={})).status_code,
                (await post("/detokenize", json={"tokens": [99999]})).status_code,
                (await get("/nowhere")).status_code,
                (await get("/v1/completions")).status_code,
            ],
            "nowhere": (await get("/nowhere")).json(),
        }

    told = serving(main, arm(max_model_len="300"))
    card = told["models"]["data"][0]
    assert (card["id"], card["max_model_len"], card["owned_by"]) == ("toy", 300, "loadgen-emulator")
    assert told["well"] == [200, 200]
    assert told["version"] == {"version": "0.32.0"}
    assert told["tokens"]["tokens"] == [100, 200, 300]
    assert (told["tokens"]["count"], told["tokens"]["max_model_len"]) == (3, 300)
    assert len(told["tokens"]["token_strs"]) == 3
    assert told["chat"]["count"] == 6
    assert told["refused"] == [400, 400, 404, 405]
    assert told["nowhere"]["error"]["code"] == 404


def test_prefixes_are_found_again_and_a_salt_keeps_them_apart():
    async def main(served):
        prompt = [100 + token % 50 for token in range(100)]
        cached = []
        for salt in ("", "", "other"):
            whole = await served.completion(prompt=prompt, max_tokens=2, cache_salt=salt)
            cached.append(whole.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
        stream = await served.completion(
            prompt=prompt, max_tokens=1, stream=True, stream_options={"include_usage": True}
        )
        cached.append(events(stream)[-2]["usage"]["prompt_tokens_details"]["cached_tokens"])
        return cached, await served.metric("vllm:prefix_cache_hits_total")

    assert serving(main, arm(enable_prefix_caching="true")) == ([0, 96, 0, 96], 192)


def test_an_answer_can_be_the_prefix_of_the_next_turn():
    async def main(served):
        prompt = list(range(100, 132))
        said = (await served.completion(prompt=prompt, max_tokens=33, ignore_eos=True)).json()["choices"][0]["text"]
        answer = (await served.http.post("/tokenize", json={"prompt": said})).json()["tokens"]
        next_turn = await served.completion(prompt=[*prompt, *answer, 100], max_tokens=1)
        return next_turn.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert serving(main, arm(enable_prefix_caching="true")) == 64


def test_usage_says_nothing_of_a_cache_that_is_off():
    async def main(served):
        return (await served.completion(max_tokens=1)).json()["usage"]

    assert "prompt_tokens_details" not in serving(main)


@pytest.mark.parametrize(("endpoint", "kind"), [("completions", "token_ids"), ("chat", "words")])
def test_a_client_learns_what_prompts_can_be_made_of(endpoint, kind):
    async def main(served):
        return await vocabulary(
            base_url="http://emulator",
            model="toy",
            endpoint=endpoint,
            check_tokens=128,
            transport=httpx.ASGITransport(app=served.front.app()),
        )

    found = serving(main)
    assert found.kind == kind
    assert found.overhead_tokens == (0 if kind == "token_ids" else 4)


def test_a_client_that_leaves_is_taken_out_of_the_engine():
    async def main(served):
        endless = {"prompt": [100], "max_tokens": 400, "ignore_eos": True}
        asked = served.front.reader.completion(str(endless).replace("'", '"').replace("T", "t").encode(), JSON)
        ticket = served.front.submit(asked)
        await asyncio.sleep(0.055)
        running = await served.metric("vllm:num_requests_running")
        served.engine.abort(ticket)
        served.engine.abort(ticket)
        left = await served.metric("vllm:num_requests_running"), await served.metric("vllm:kv_cache_usage_perc")
        return running, left, await served.metric("vllm:request_success_total"), await ticket.more(400), ticket.handed

    running, left, ended, more, handed = serving(main)
    assert running == 1
    assert left == (0, 0)
    assert ended == 1
    assert (more, handed) == (False, 5)


def test_steps_keep_their_instants_and_batch_what_waits():
    async def main(served):
        loop = asyncio.get_running_loop()

        async def timed(body):
            response = await served.completion(**body)
            return response.json()["usage"]["completion_tokens"], loop.time()

        bodies = [{"max_tokens": count, "ignore_eos": True} for count in (10, 10, 200)]
        return (
            await asyncio.gather(*map(timed, bodies)),
            served.late,
            await served.metric("loadgen_emulator_steps_total"),
        )

    ends, late, steps = serving(main)
    assert [end for _, end in ends] == pytest.approx([0.10, 0.10, 2.0])
    assert steps == 200
    assert late == []


def test_a_slow_machine_says_so_once_and_the_engine_goes_on_from_now():
    async def main(served):
        loop = asyncio.get_running_loop()
        ticket = served.engine.submit(prompt_tokens=1, output_tokens=6)
        seen = []
        for number in range(6):
            await ticket.more(number)
            seen.append(loop.time())
            if number in (1, 3):
                loop._virtual_s += 0.050  # something else held the loop
        return seen, served.late, await served.metric("loadgen_emulator_late_steps_total")

    seen, late, counted = serving(main)
    assert seen == pytest.approx([0.01, 0.02, 0.07, 0.08, 0.13, 0.14])
    assert counted == 2
    assert len(late) == 1
    assert "a step ended 40.0 ms after its time" in late[0]


def test_a_little_lateness_is_caught_up_with():
    async def main(served):
        loop = asyncio.get_running_loop()
        ticket = served.engine.submit(prompt_tokens=1, output_tokens=3)
        seen = []
        for number in range(3):
            await ticket.more(number)
            seen.append(loop.time())
            loop._virtual_s += 0.013 if number == 0 else 0.0
        return seen, served.late

    seen, late = serving(main)
    assert seen == pytest.approx([0.01, 0.023, 0.03])
    assert late == []


def test_stopping_ends_every_answer():
    async def main(served):
        asking = asyncio.create_task(served.completion(max_tokens=400, ignore_eos=True))
        await asyncio.sleep(0.1)
        served.engine.stop()
        return await asking

    response = serving(main)
    assert (response.status_code, response.json()["error"]["type"]) == (500, "InternalServerError")


def test_the_same_seed_gives_the_same_steps():
    noisy = emulated(profile(noise={"step": 0.1, "start": 0.1}), {})

    def ends(seed):
        async def main(served):
            engine = Engine(
                noisy, served.engine.account, seed=seed, clock=asyncio.get_running_loop().time, origin_s=0.0
            )
            running = asyncio.create_task(engine.run())
            ticket = engine.submit(prompt_tokens=5, output_tokens=20)
            await ticket.more(19)
            running.cancel()
            return ticket.sequence.events_s

        return serving(main)

    assert ends(1) == ends(1)
    assert ends(1) != ends(2)
