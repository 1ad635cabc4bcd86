import collections

import pytest
from hypothesis import given, strategies as st

from loadgen.errors import UserError
from loadgen.records import Plan, Request, Run, StagePlan, StageSpec, Vocabulary
from loadgen.workload import prompts

IDS = Vocabulary(kind="token_ids", low=100, high=2_000)
WORDS = Vocabulary(kind="words", words=("alpha", "beta", "gamma", "delta"), overhead_tokens=7)


def request(*runs: tuple[str, int]) -> Request:
    return Request(index=0, runs=tuple(Run(key, tokens) for key, tokens in runs), output_tokens=1)


def ids(*runs: tuple[str, int], seed: int = 1, salt: str = "s") -> list[int]:
    made = prompts.render(request(*runs), seed=seed, salt=salt, vocabulary=IDS)
    assert isinstance(made, list)
    return made


keys = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(
    key=keys, tokens=st.integers(1, 400), more=st.integers(0, 400), low=st.integers(0, 50), span=st.integers(1, 200_000)
)
def test_exact_counts_in_range_and_a_longer_run_starts_with_the_shorter(
    key: str, tokens: int, more: int, low: int, span: int
) -> None:
    vocabulary = Vocabulary(kind="token_ids", low=low, high=low + span)
    short = prompts.render(request((key, tokens)), seed=1, salt="s", vocabulary=vocabulary)
    long = prompts.render(request((key, tokens + more)), seed=1, salt="s", vocabulary=vocabulary)
    assert len(short) == tokens
    assert long[:tokens] == short
    assert all(isinstance(one, int) and low <= one < low + span for one in long)


def test_content_follows_key_seed_and_salt() -> None:
    base = ids(("u:a:0", 50))
    assert ids(("u:a:0", 50)) == base
    assert ids(("u:a:1", 50)) != base
    assert ids(("u:a:0", 50), seed=2) != base
    assert ids(("u:a:0", 50), salt="t") != base
    assert ids(("u:a:0", 50), seed=11, salt="") != ids(("u:a:0", 50), seed=1, salt="1")


def test_the_content_is_pinned() -> None:
    assert ids(("u:a:0", 6), seed=7, salt="block-0") == PINNED


PINNED = [1471, 287, 918, 1135, 1297, 118]


def test_shared_runs_are_equal_in_different_requests() -> None:
    one, other = ids(("p:0", 64), ("u:a:0", 10)), ids(("p:0", 64), ("u:a:1", 20))
    assert one[:64] == other[:64]
    assert one[64:] != other[64:74]
    assert ids(("p:1", 64), ("u:a:0", 10))[:64] != one[:64]


def test_ids_use_the_whole_range_evenly() -> None:
    counts = collections.Counter(one // 190 for one in (value - 100 for value in ids(("u:a:0", 19_000))))
    assert sorted(counts) == list(range(10))
    assert all(abs(count - 1_900) < 200 for count in counts.values())


def test_words_leave_room_for_the_servers_own_tokens() -> None:
    made = prompts.render(request(("p:0", 20), ("u:a:0", 13)), seed=1, salt="s", vocabulary=WORDS)
    assert isinstance(made, str)
    assert len(made.split(" ")) == 33 - 7
    assert set(made.split(" ")) <= set(WORDS.words)


def test_a_shared_prefix_of_words_stays_whole() -> None:
    one, other = (
        prompts.render(request(("p:0", 20), (f"u:a:{index}", 13)), seed=1, salt="s", vocabulary=WORDS)
        for index in range(2)
    )
    assert isinstance(one, str)
    assert isinstance(other, str)
    assert one.split(" ")[:20] == other.split(" ")[:20]
    short = prompts.render(request(("p:0", 20), ("u:a:0", 3)), seed=1, salt="s", vocabulary=WORDS)
    assert isinstance(short, str)
    assert short.split(" ") == one.split(" ")[:16], "an overhead longer than the last run goes on into the prefix"
    equal = prompts.render(request(("p:0", 20), ("u:a:0", 7)), seed=1, salt="s", vocabulary=WORDS)
    assert isinstance(equal, str)
    assert equal.split(" ") == one.split(" ")[:20]


def test_a_prompt_shorter_than_the_overhead_is_refused_beforehand() -> None:
    tiny = request(("u:a:0", 7))
    with pytest.raises(UserError, match="a prompt of 7 tokens cannot be made"):
        prompts.render(tiny, seed=1, salt="s", vocabulary=WORDS)
    stage = StagePlan(spec=StageSpec(name="a", role="one_stream"), warmup=(), requests=(tiny,))
    plan = Plan(scenario="x", seed=1, digest="", stages=(stage,))
    with pytest.raises(UserError, match=r"stage a: .* input_tokens should be at least 8"):
        prompts.check(plan, WORDS)
    prompts.check(plan, IDS)
