from collections import Counter

import pytest
from hypothesis import given, strategies as st

from loadgen.experiment.order import order, repeat_of


def test_two_arms_run_a_b_b_a():
    assert order(2, 4) == (0, 1, 1, 0, 0, 1, 1, 0)


@given(st.integers(1, 5), st.integers(1, 12))
def test_every_arm_has_its_repeats_and_each_round_has_every_arm(arms, repeats):
    sequence = order(arms, repeats)
    assert Counter(sequence) == dict.fromkeys(range(arms), repeats)
    for turn in range(repeats):
        assert set(sequence[turn * arms : (turn + 1) * arms]) == set(range(arms))


@given(st.integers(2, 4), st.integers(1, 6).map(lambda half: 2 * half), st.floats(-5, 5))
def test_linear_drift_cancels_over_an_even_number_of_rounds(arms, repeats, drift):
    sums = [0.0] * arms
    for position, arm in enumerate(order(arms, repeats)):
        sums[arm] += drift * position
    assert sums == pytest.approx([sums[0]] * arms)


def test_repeats_count_within_the_arm():
    sequence = order(2, 3)
    assert [repeat_of(sequence, position) for position in range(6)] == [0, 0, 1, 1, 2, 2]
