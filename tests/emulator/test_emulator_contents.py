"""Numbers of block contents are equal exactly where the tokens that a server would be sent are."""

from hypothesis import given, settings, strategies as st

from loadgen.emulator.contents import Contents
from loadgen.records import Request, Run, Vocabulary
from loadgen.workload.prompts import render

IDS = Vocabulary(kind="token_ids", low=1000, high=2**31)  # so many that no two tokens are equal by chance
KEYS = st.sampled_from(["u:s:0", "u:s:1", "p:0", "p:1", "b:s:7", "b:s:8"])
RUNS = st.lists(st.builds(Run, KEYS, st.integers(1, 12)), min_size=1, max_size=4).map(tuple)
REQUESTS = st.lists(st.tuples(RUNS, st.integers(1, 9), st.sampled_from(["a", "b"])), min_size=1, max_size=6)


def asked(*runs: tuple[str, int], output_tokens: int = 1, index: int = 0) -> Request:
    return Request(index=index, runs=tuple(Run(*run) for run in runs), output_tokens=output_tokens)


@settings(max_examples=300, deadline=None)
@given(REQUESTS, st.integers(1, 7))
def test_numbers_are_equal_exactly_where_tokens_are(drawn: list[tuple[tuple[Run, ...], int, str]], size: int) -> None:
    contents = Contents(size)
    seen: dict[int, tuple[object, ...]] = {}
    held: dict[tuple[object, ...], int] = {}
    for index, (runs, output_tokens, salt) in enumerate(drawn):
        request = Request(index=index, runs=runs, output_tokens=output_tokens)
        tokens = render(request, seed=3, salt=salt, vocabulary=IDS)
        whole = [*tokens, *((index, place) for place in range(output_tokens))]  # what is generated is the request's own
        numbers = contents.of(request, salt)
        assert len(numbers) == len(whole) // size
        for place, number in enumerate(numbers):
            prefix = tuple(whole[: (place + 1) * size])
            assert seen.setdefault(number, prefix) == prefix
            assert held.setdefault(prefix, number) == number


def test_a_run_shared_at_another_length_shares_the_blocks_inside_it() -> None:
    contents = Contents(4)
    whole, part = contents.of(asked(("p:0", 12)), "s"), contents.of(asked(("p:0", 9), ("u:1", 7)), "s")
    assert part[:2] == whole[:2]
    assert part[2] != whole[2]


def test_the_same_run_after_something_else_is_something_else() -> None:
    contents = Contents(2)
    assert contents.of(asked(("b:1", 2), ("b:2", 2)), "s")[1] != contents.of(asked(("b:3", 2), ("b:2", 2)), "s")[1]
    assert contents.of(asked(("b:1", 2), ("b:2", 2)), "s")[1] == contents.of(asked(("b:1", 2), ("b:2", 4)), "s")[1]


def test_salts_share_nothing_and_an_output_is_never_met_again() -> None:
    contents = Contents(2)
    request = asked(("p:0", 4), output_tokens=4)
    first, again, salted = contents.of(request, "0"), contents.of(request, "0"), contents.of(request, "1")
    assert first[:2] == again[:2]
    assert len({*first, *again, *salted}) == 2 + 2 + 2 + 4


def test_a_block_that_begins_in_the_prompt_and_ends_in_the_output_is_the_requests_own() -> None:
    contents = Contents(4)
    request = asked(("p:0", 6), output_tokens=3)
    first, again = contents.of(request, "s"), contents.of(request, "s")
    assert (len(first), first[0] == again[0], first[1] == again[1]) == (2, True, False)
