import json

import pytest

from loadgen.server.log import last_line, lines, telling_lines

MESSAGE = "GPU KV cache size: 1,234,567 tokens"


@pytest.mark.parametrize(
    "raw",
    [
        f"INFO 09-22 20:31:06 kv_cache_utils.py:637] {MESSAGE}",
        f"INFO 09-22 20:31:06 [kv_cache_utils.py:637] {MESSAGE}",
        f"(EngineCore pid=7523) INFO 11-30 14:45:29 [kv_cache_utils.py:2327] {MESSAGE}",
        f"(EngineCore_DP0 pid=39535) INFO 03-03 19:33:23 [kv_cache_utils.py:1] {MESSAGE}",
        f"(VllmWorker rank=3 pid=285) INFO 04-17 23:28:22 [cuda.py:221] {MESSAGE}",
        f"(Worker_TP0 pid=54584) INFO 01-15 03:17:56 [distributed/kv/v1/x.py:630] {MESSAGE}",
        f"\x1b[1;36m(EngineCore_DP0 pid=279)\x1b[0;0m INFO 12-02 15:47:51 [core.py:93] {MESSAGE}",
        f"vllm-1  | (EngineCore pid=7) INFO 12-02 15:47:51 [core.py:93] {MESSAGE}",
        f"2026-11-30T12:00:00.123456789Z stdout F (EngineCore pid=7) INFO 11-30 12:00:00 [core.py:93] {MESSAGE}",
        f"2026-05-01 21:55:53.356 | (EngineCore pid=187) INFO 05-01 19:55:53 [cuda.py:423] {MESSAGE}",
        f"[pod/vllm-0/server] INFO 11-30 12:00:00 [core.py:93] {MESSAGE}",
        f"Nov 30 12:00:00 host vllm[123]: INFO 11-30 12:00:00 [core.py:93] {MESSAGE}",
        json.dumps({"log": f"INFO 11-30 12:00:00 [core.py:93] {MESSAGE}\n", "stream": "stdout", "time": "2026"}),
        json.dumps({"level": "INFO", "message": f"\x1b[32mINFO 11-30 12:00:00 [core.py:93] {MESSAGE}\x1b[0m"}),
        json.dumps({"msg": MESSAGE}),
        f"vllm-1  | {MESSAGE}",
        f"2026-11-30T12:00:00.123Z {MESSAGE}",
        f"2026-11-30T12:00:00.123Z stderr F (EngineCore pid=3) {MESSAGE}",
    ],
)
def test_every_wrapping_comes_off(raw):
    assert [line.text for line in lines(raw)] == [MESSAGE]


def test_levels_are_read_and_lines_without_header_have_none():
    text = "(A pid=1) WARNING 11-30 14:45:05 [system_utils.py:255] Found ulimit\nTriton is installed\n"
    found = [(line.level, line.text) for line in lines(text) if line.text]
    assert found == [("WARNING", "Found ulimit"), (None, "Triton is installed")]


def test_a_json_line_with_several_messages_gives_them_all():
    assert [line.text for line in lines(json.dumps({"log": "one\r\ntwo\n"}))] == ["one", "two"]


@pytest.mark.parametrize("raw", ["{'host': 1}", '{"other": "x"}', '{"log": 3}', '{"log": "\\ud800"}'])
def test_what_only_looks_like_json_is_kept(raw):
    assert [line.text for line in lines(raw)] == [raw]


def test_a_line_of_json_nested_without_end_is_kept():
    assert len(list(lines('{"log": ' + "[" * 100_000))) == 1


def test_a_line_of_wrappers_alone_and_a_line_without_end_are_read_once():
    (found,) = lines("(pid=1) " * 200_000 + "x")
    assert found.text == ""
    assert last_line("(pid=1) " * 1_000 + "done") == "done"
    (found,) = lines("x" * 10**7)
    assert len(found.text) == 65_536


ROOT = "ValueError: No available memory for the cache blocks."
TRACEBACK = f"""\
INFO 11-30 14:45:05 [x.py:1] fine
(EngineCore pid=8) ERROR 11-30 14:48:26 [core.py:1510] Traceback (most recent call last):
(EngineCore pid=8) ERROR 11-30 14:48:26 [core.py:1510]   File "/x/kv_cache_utils.py", line 1010, in check
(EngineCore pid=8) ERROR 11-30 14:48:26 [core.py:1510]     raise ValueError(
(EngineCore pid=8) ERROR 11-30 14:48:26 [core.py:1510] {ROOT}
(EngineCore pid=8) {ROOT}
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}
/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: There appear to be 1 leaked objects
"""


def test_the_cause_is_told_once_and_its_consequence_is_not():
    assert telling_lines(TRACEBACK) == (ROOT,)


def test_a_consequence_alone_is_told():
    text = "starting\nRuntimeError: Engine core initialization failed. See root cause above.\nbye\n"
    assert telling_lines(text) == ("RuntimeError: Engine core initialization failed. See root cause above.",)


@pytest.mark.parametrize(
    "line",
    [
        "api_server.py: error: argument --kv-cache-dtype: invalid choice: 'fp9' (choose from 'auto')",
        "OSError: [Errno 98] Address already in use",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder",
        "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size=64). Reasons: {}",
        "/opt/python: No module named vllm",
        "Killed",
    ],
)
def test_the_line_that_says_why(line):
    assert telling_lines(f"usage: api_server.py\n  [--flag]\n{line}\nsome last words\n") == (line,)


def test_a_validation_error_brings_its_second_line():
    text = "ValidationError: 1 validation error for ModelConfig\n  Value error, Model architectures ['X'] unsupported\n"
    assert telling_lines(text) == (
        "ValidationError: 1 validation error for ModelConfig: Value error, Model architectures ['X'] unsupported",
    )


def test_where_nothing_looks_like_an_error_the_last_lines_are_told():
    assert telling_lines("a\nb\nc\nd\ne\n\n") == ("b", "c", "d", "e")
    assert telling_lines("") == ()


def test_a_very_long_line_is_cut():
    (told,) = telling_lines("ValueError: " + "x" * 5000)
    assert len(told) == 601


def test_the_last_line_that_says_something():
    assert last_line("INFO 11-30 14:45:05 [x.py:1] Loading weights\n████ \n\n") == "Loading weights"
    assert last_line("\n") == ""
