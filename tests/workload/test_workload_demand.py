import pytest
from hypothesis import given, settings, strategies as st

from loadgen.records import Request, Run, StagePlan, StageSpec
from loadgen.workload.demand import Speeds, demand, met
from loadgen.workload.reuse import reused_ratio

SPEEDS = Speeds(prefill_tokens_per_s=1_000, decode_gap_s=0.1)


def request(index: int, prompt: int, output: int, *, due_s: float | None = None, prefix: int = 0) -> Request:
    own = Run(f"u:a:{index}", prompt - prefix)
    runs = (Run("p:0", prefix), own) if prefix else (own,)
    return Request(index=index, due_s=due_s, runs=runs, output_tokens=output)


def stage(*requests: Request, concurrency: int | None = None) -> StagePlan:
    spec = StageSpec(name="a", role="open_loop" if concurrency is None else "saturated", concurrency=concurrency)
    return StagePlan(spec=spec, warmup=(), requests=requests)


def test_a_closed_loop_holds_what_its_streams_hold() -> None:
    wanted = demand(stage(*(request(index, 100, 10) for index in range(8)), concurrency=4), SPEEDS)
    assert (wanted.in_flight, wanted.peak_tokens) == (4, 440)
    # Each stays 0.1 s in prefill and 1 s in decode, while its output grows to 10: (100 x 1.1 + 10 x 1 / 2) / 1.1.
    assert wanted.mean_tokens == pytest.approx(4 * (110 + 5) / 1.1)


def test_a_long_request_stays_while_short_ones_pass() -> None:
    requests = (request(0, 1_000, 100), request(1, 10, 1), request(2, 10, 1), request(3, 900, 1))
    wanted = demand(stage(*requests, concurrency=2), SPEEDS)
    assert wanted.peak_tokens == 1_100 + 901, "no two of these are neighbours in the plan"


def test_an_open_loop_follows_due_times() -> None:
    apart = demand(stage(request(0, 100, 10, due_s=0), request(1, 100, 10, due_s=1.2)), SPEEDS)
    assert (apart.in_flight, apart.peak_tokens) == (1, 110)
    together = demand(stage(request(0, 100, 10, due_s=0), request(1, 100, 10, due_s=1)), SPEEDS)
    assert (together.in_flight, together.peak_tokens) == (2, 220)
    assert apart.assumed == SPEEDS


def test_a_shared_prefix_is_held_once() -> None:
    wanted = demand(stage(*(request(index, 100, 10, prefix=60) for index in range(4)), concurrency=4), SPEEDS)
    assert wanted.peak_tokens == 60 + 4 * 50
    assert wanted.mean_tokens == pytest.approx(60 + 4 * (40 * 1.1 + 5) / 1.1)
    assert wanted.reused_ratio == pytest.approx(3 * 60 / 400)


def test_a_shared_prefix_goes_with_its_last_holder() -> None:
    holders = [request(index, 100, 10, due_s=index * 0.5, prefix=60) for index in range(3)]
    later = request(3, 300, 10, due_s=10)
    assert demand(stage(*holders, later), SPEEDS).peak_tokens == 310


def test_later_turns_are_held_when_those_before_have_ended_and_their_client_has_thought() -> None:
    first, apart = request(0, 100, 10, due_s=0), request(1, 300, 10, due_s=5)
    later = Request(index=2, runs=(Run("u:a:2", 200),), output_tokens=10, after=(0,), think_s=4.0)
    # The first stays 1.1 s, the client thinks until 5.1 s, and the other one came at 5 s.
    both = demand(stage(first, apart, later), SPEEDS)
    assert (both.in_flight, both.peak_tokens) == (2, 310 + 210)
    # As sessions one after the other only one is held at a time.
    closed = demand(stage(first, apart, later, concurrency=1), SPEEDS)
    assert (closed.in_flight, closed.peak_tokens) == (1, 310)


def test_whole_blocks() -> None:
    wanted = demand(stage(request(0, 100, 10), request(1, 100, 29), concurrency=2), SPEEDS, block_tokens=128)
    assert wanted.peak_tokens == 128 + 256


def test_reuse_counts_the_longest_seen_part_of_a_run() -> None:
    first, second = (Request(index=0, runs=(Run("p:0", tokens),), output_tokens=1) for tokens in (30, 50))
    assert reused_ratio([first, second]) == 30 / 80
    assert reused_ratio([second, first]) == 30 / 80


def test_how_many_a_capacity_holds() -> None:
    wanted = demand(stage(*(request(index, 250, 6) for index in range(32)), concurrency=32), SPEEDS)
    assert wanted.peak_tokens == 8_192
    assert (wanted.held(4_096), wanted.held(8_192), wanted.held(100_000), wanted.held(255)) == (16, 32, 32, 0)


@settings(deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 500), st.integers(1, 50), st.floats(0, 20)), min_size=1, max_size=30),
    concurrency=st.one_of(st.none(), st.integers(1, 8)),
    prefix=st.integers(0, 300),
)
def test_the_mean_never_exceeds_the_peak_nor_the_peak_the_sum(
    lengths: list[tuple[int, int, float]], concurrency: int | None, prefix: int
) -> None:
    requests = [
        request(index, prompt, output, due_s=None if concurrency else due_s, prefix=min(prefix, prompt - 1))
        for index, (prompt, output, due_s) in enumerate(sorted(lengths, key=lambda length: length[2]))
    ]
    wanted = demand(stage(*requests, concurrency=concurrency), SPEEDS)
    assert 0 <= wanted.mean_tokens <= wanted.peak_tokens * (1 + 1e-9)
    assert wanted.peak_tokens <= sum(one.prompt_tokens + one.output_tokens for one in requests)
    assert wanted.in_flight <= (concurrency or len(requests))


def test_a_server_meets_sessions_that_go_on_at_once_in_turns_and_no_more_than_time_allows():
    def turn(index: int, after: int | None) -> Request:
        return Request(
            index=index,
            runs=(Run(f"s:{index // 2}", 100),),
            output_tokens=50,
            after=None if after is None else (after,),
            think_s=1.0,
        )

    plan = [turn(0, None), turn(1, 0), turn(2, None), turn(3, 2), turn(4, None), turn(5, 4)]
    assert [request.index for request in met(plan, 2, None)] == [0, 2, 1, 3, 4, 5]
    assert [request.index for request in met(plan, 1, None)] == [0, 1, 2, 3, 4, 5]
    assert [request.index for request in met(plan, 2, 3.5)] == [0, 2, 1, 3, 4]  # a turn takes 1.01 s
