import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from loadgen.workload import arrivals
from loadgen.workload.seeding import generator


@given(
    count=st.integers(1, 300),
    rate=st.floats(0.01, 1_000),
    cv=st.one_of(st.just(0.0), st.floats(0.05, 100)),
    seed=st.integers(0, 99),
)
def test_a_schedule_starts_at_zero_is_ordered_and_ends_within_its_time(
    count: int, rate: float, cv: float, seed: int
) -> None:
    due = arrivals.scheduled(count, rate_per_s=rate, cv=cv, rng=generator(seed))
    assert len(due) == count
    assert due[0] == 0
    assert all(early <= late for early, late in itertools.pairwise(due))
    assert due[-1] <= count / rate + 1e-6


def test_even_spacing() -> None:
    assert arrivals.scheduled(5, rate_per_s=4, cv=0, rng=generator(1)) == [0, 0.25, 0.5, 0.75, 1.0]
    assert arrivals.scheduled(0, rate_per_s=4, cv=0, rng=generator(1)) == []


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_gaps_have_the_asked_mean_and_variation(cv: float) -> None:
    due = arrivals.scheduled(40_000, rate_per_s=20, cv=cv, rng=generator(2))
    gaps = np.diff(due)
    assert gaps.mean() == pytest.approx(1 / 20, rel=0.01)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_extreme_burstiness_is_one_burst() -> None:
    due = arrivals.scheduled(20, rate_per_s=2, cv=1_000, rng=generator(4))
    assert len(set(due)) <= 2


def test_count_within_a_duration() -> None:
    assert arrivals.count_within(60, rate_per_s=5) == 300
    assert arrivals.count_within(0.1, rate_per_s=1) == 1
    assert arrivals.count_within(0.3, rate_per_s=10) == 3, "0.3 x 10 is 3 in spite of floats"
