from collections.abc import Sequence as Items
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from loadgen.emulator.cost import StepCost, Work
from loadgen.emulator.model import Limits, Model, Sequence, Step
from loadgen.emulator.noise import Noise, NoiseSpec

ONE_SECOND = StepCost(fixed_s=1.0, bytes_per_token=0.0, attention_bandwidth_bytes_per_s=1.0)


def engine(usable: int, *, noise: NoiseSpec | None = None, **limits: Any) -> Model:
    """A model with `usable` blocks of 4 tokens (one more is the null block) whose steps take a second."""
    return Model(
        Limits(**{"blocks": usable + 1, "block_tokens": 4, **limits}),
        ONE_SECOND,
        Noise(noise or NoiseSpec(), seed=(1,)),
    )


def asked(prompt: int, output: int, contents: Items[object] = ()) -> Sequence:
    return Sequence(prompt_tokens=prompt, output_tokens=output, arrived_s=0.0, contents=contents)


def added(model: Model, *sequences: Sequence) -> None:
    for sequence in sequences:
        model.add(sequence)


def ran(model: Model, most: int = 5000) -> list[Step]:
    """All steps to the end, each from the end of the one before."""
    steps: list[Step] = []
    while model.busy:
        steps.append(model.step(steps[-1].ended_s if steps else 0.0))
        assert len(steps) < most, "the engine does not come to an end"
    return steps


def test_a_prompt_is_prefilled_in_chunks_of_the_budget() -> None:
    model, sequence = engine(9, max_num_batched_tokens=8), asked(20, 3)
    model.add(sequence)
    assert [step.work.new_tokens for step in ran(model)] == [8, 8, 4, 1, 1]
    assert sequence.events_s == [3.0, 4.0, 5.0]
    assert sequence.admitted_s == 0.0


def test_the_work_of_each_step_is_summed_over_its_sequences() -> None:
    model = engine(9, max_num_batched_tokens=8)
    first, second = asked(6, 3), asked(5, 2)
    added(model, first, second)
    steps = ran(model)
    assert [step.work for step in steps] == [
        Work(1, 8, 8, 0, 0, 6 * 3.0 + 2 * 1.0),
        Work(2, 4, 3, 6 + 2, 0, 3 * (2 + 1.5)),
        Work(2, 2, 0, 7 + 5, 0, 0.0),
    ]
    assert [step.yielding for step in steps] == [[first], [first, second], [first, second]]
    assert [step.finished for step in steps] == [[], [], [first, second]]
    assert [step.admitted for step in steps] == [[first, second], [], []]


def test_context_inside_the_residual_window_is_told_apart() -> None:
    model = engine(9, residual_tokens=3)
    added(model, asked(2, 3), asked(8, 3))
    assert [(s.work.context_tokens, s.work.residual_tokens) for s in ran(model)] == [(0, 0), (10, 2 + 3), (12, 3 + 3)]


def test_the_sequence_admitted_last_is_preempted_and_computed_again() -> None:
    model = engine(4)
    first, second = asked(7, 4), asked(7, 4)
    added(model, first, second)
    steps = ran(model)
    assert [step.preempted for step in steps] == [[], [], [second], [], [], []]
    assert [step.work.new_tokens for step in steps] == [14, 2, 1, 1, 9, 1]
    assert [step.admitted for step in steps] == [[first, second], [], [], [], [second], []]
    assert steps[4].work == Work(1, 9, 9, 0, 0, 9 * 4.5)
    assert (first.events_s, second.events_s) == ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 5.0, 6.0])
    assert (first.preemptions, second.preemptions, second.admitted_s) == (0, 1, 0.0)


def test_a_sequence_may_preempt_itself_and_nobody_is_admitted_in_that_step() -> None:
    model = engine(3)
    first, second, third = asked(6, 2), asked(4, 3), asked(1, 1)
    added(model, first, second)
    model.step(0.0)
    model.add(third)
    step = model.step(1.0)
    assert (step.yielding, step.preempted, step.admitted) == ([first], [second], [])
    assert list(model.waiting) == [second, third]
    assert model.step(2.0).admitted == [second, third]
    assert model.usage_ratio == pytest.approx(2 / 3)  # the third has ended


def test_slots_limit_the_batch_and_are_given_first_come_first_served() -> None:
    model = engine(30, max_num_seqs=2)
    sequences = [asked(4, 2), asked(4, 3), asked(4, 1), asked(4, 1)]
    added(model, *sequences)
    assert [[sequences.index(s) for s in step.admitted] for step in ran(model)] == [[0, 1], [], [2], [3]]


def test_the_first_that_does_not_fit_stops_the_rest() -> None:
    model = engine(4)
    first, large, small = asked(8, 5), asked(12, 1), asked(1, 1)
    added(model, first, large, small)
    assert model.step(0.0).admitted == [first]
    assert list(model.waiting) == [large, small]


def test_a_sequence_waits_for_blocks_for_all_of_it_not_for_its_first_chunk() -> None:
    model = engine(4, max_num_batched_tokens=8)
    first, second = asked(5, 4), asked(12, 1)
    added(model, first, second)
    steps = ran(model)
    assert [step.admitted for step in steps][:5] == [[first], [], [], [], [second]]


def test_without_chunks_a_prompt_waits_for_a_step_that_takes_it_whole() -> None:
    model = engine(9, chunked_prefill=False, max_num_batched_tokens=10)
    added(model, asked(6, 2), asked(5, 1))
    assert [step.work.new_tokens for step in ran(model)] == [6, 6]


def test_what_could_never_end_is_refused() -> None:
    model = engine(3)
    with pytest.raises(ValueError, match="needs 4 blocks of 3"):
        model.add(asked(10, 4))
    model.add(asked(10, 3))  # the last token is never stored
    assert len(ran(model)) == 3
    whole = engine(9, chunked_prefill=False, max_num_batched_tokens=8)
    with pytest.raises(ValueError, match="needs up to 9 tokens in one step of 8"):
        whole.add(asked(8, 2))


def test_an_aborted_sequence_is_taken_out_wherever_it_is() -> None:
    model = engine(4, max_num_seqs=1)
    runs, waits, other = asked(8, 5), asked(8, 5), asked(4, 1)
    added(model, runs, waits, other)
    model.step(0.0)
    assert model.pool.free == 2
    for sequence in (runs, waits):
        model.abort(sequence)
        assert sequence.aborted
    assert (model.running, list(model.waiting), model.pool.free) == ([], [other], 4)
    assert ran(model)[-1].finished == [other]
    model.abort(other)
    assert (model.busy, model.pool.free, len(runs.events_s)) == (False, 4, 1)


def test_sequences_admitted_in_one_step_share_a_prefix() -> None:
    model = engine(9, prefix_caching=True)
    added(model, asked(9, 1, "ab"), asked(9, 1, "ab"))
    step = model.step(0.0)
    assert step.work.new_tokens == 9 + 1
    assert step.work.context_tokens == 8
    assert [s.cached_tokens for s in step.admitted] == [0, 8]
    assert (model.prefix_queries, model.prefix_hits) == (18, 8)


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    model = engine(9, prefix_caching=True)
    for _ in range(2):
        model.add(asked(8, 1, "ab"))
    assert model.step(0.0).work.new_tokens == 8 + 4


def test_a_prefix_is_found_when_its_owner_is_gone_until_its_blocks_are_taken() -> None:
    model = engine(4, prefix_caching=True)
    model.add(asked(9, 1, "ab"))
    ran(model)
    assert model.pool.free == 4
    model.add(asked(9, 1, "ab"))
    assert ran(model)[0].work.new_tokens == 1
    model.add(asked(12, 1, "xyz"))  # takes the two unknown ones and the tail of the known
    ran(model)
    model.add(asked(9, 1, "ab"))
    assert ran(model)[0].work.new_tokens == 5


def test_a_preempted_sequence_finds_its_own_blocks_and_is_not_counted_again() -> None:
    model = engine(4, prefix_caching=True)
    added(model, asked(7, 4, ["A0", "A1"]), asked(7, 4, ["B0", "B1"]))
    steps = ran(model)
    assert len(steps[2].preempted) == 1
    assert steps[4].work.new_tokens == 9 - 4  # the other took the last of its two blocks
    assert (model.prefix_queries, model.prefix_hits) == (14, 0)


def test_usage_counts_what_sequences_hold() -> None:
    model = engine(8, prefix_caching=True)
    model.add(asked(9, 2, "ab"))
    model.step(0.0)
    assert model.usage_ratio == 3 / 8
    model.step(1.0)
    assert (model.usage_ratio, model.busy) == (0.0, False)


Case = tuple[dict[str, Any], list[tuple[int, int, int, int, int]]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Limits, and requests: step of arrival, prompt, output, prefix that it shares, steps until abort (0: none)."""
    size, chunked = draw(st.integers(1, 5)), draw(st.booleans())
    requests = draw(
        st.lists(
            st.tuples(
                st.integers(0, 30), st.integers(1, 30), st.integers(1, 12), st.integers(0, 2), st.integers(0, 15)
            ),
            min_size=1,
            max_size=12,
        )
    )
    least = max(-(-(prompt + output - 1) // size) for _, prompt, output, _, _ in requests)
    slots = draw(st.integers(1, 6))
    limits = {
        "blocks": draw(st.integers(least, 3 * least)) + 1,
        "block_tokens": size,
        "max_num_seqs": slots,
        "max_num_batched_tokens": draw(st.integers(slots, 40)) if chunked else 42,
        "chunked_prefill": chunked,
    }
    return limits, sorted(requests)


def tokens_per_sequence(case: Case, *, caching: bool, aborts: bool) -> list[list[float]]:
    """Runs a case to its end under all that must hold in every step; when each token came out, per request."""
    limits, requests = case
    noise = NoiseSpec(step=0.1, wander=0.1, hiccups_per_minute=20)
    model = engine(0, noise=noise, prefix_caching=caching, **limits)
    size, now_s, number = model.limits.block_tokens, 0.0, 0
    sequences: list[Sequence] = []
    while model.busy or len(sequences) < len(requests):
        while len(sequences) < len(requests) and requests[len(sequences)][0] <= number:
            _, prompt, output, group, _ = requests[len(sequences)]
            own = len(sequences)
            shared = [(group, end) if end <= 12 else (own, end) for end in range(size, prompt + output + 1, size)]
            sequences.append(asked(prompt, output, shared))
            model.add(sequences[-1])
        for sequence, (arrived, *_, stays) in zip(sequences, requests, strict=False):
            if aborts and stays and number == arrived + stays:
                model.abort(sequence)
        if model.busy:
            step = model.step(now_s)
            now_s = step.ended_s
            check(model, step, caching=caching)
        number += 1
        assert number < 2000, "the engine does not come to an end"
    assert (model.pool.free, model.usage_ratio) == (model.pool.total, 0.0)
    return [sequence.events_s for sequence in sequences]


def check(model: Model, step: Step, *, caching: bool) -> None:
    limits = model.limits
    assert len(model.running) <= limits.max_num_seqs
    assert 0 < step.work.new_tokens <= limits.max_num_batched_tokens
    assert step.took_s > 0
    held = [block for sequence in model.running for block in sequence.blocks]
    assert model.pool.free + (len(set(held)) if caching else len(held)) == model.pool.total
    for sequence in model.running:
        assert sequence.computed <= sequence.tokens
        assert len(sequence.blocks) * limits.block_tokens >= sequence.computed
    assert not any(sequence.blocks for sequence in model.waiting)


@settings(deadline=None)
@given(cases(), st.booleans())
def test_nothing_leaks_and_no_limit_is_broken(case: Case, caching: bool) -> None:
    tokens_per_sequence(case, caching=caching, aborts=True)


@settings(deadline=None, max_examples=60)
@given(cases())
def test_caching_changes_no_tokens_and_the_same_seed_gives_the_same_run(case: Case) -> None:
    runs = [tokens_per_sequence(case, caching=caching, aborts=False) for caching in (False, True, True)]
    for events in runs:
        assert [len(times) for times in events] == [output for _, _, output, _, _ in case[1]]
        assert all(times == sorted(times) for times in events)
    assert runs[1] == runs[2]
