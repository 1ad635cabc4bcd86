import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from loadgen.workload import lengths
from loadgen.workload.fields import Lengths, Quantiles, Range
from loadgen.workload.seeding import generator

AZURE = Quantiles(quantiles={10: 207, 50: 1020, 90: 2735, 99: 4142, 100: 14050})


@st.composite
def specs(draw: st.DrawFn) -> Lengths:
    kind = draw(st.sampled_from(["constant", "range", "quantiles"]))
    tokens = st.integers(1, 200_000)
    if kind == "constant":
        return draw(tokens)
    if kind == "range":
        low, high = sorted((draw(tokens), draw(tokens)))
        return Range(range=(low, high))
    levels = sorted({*draw(st.sets(st.integers(0, 99), min_size=1, max_size=5)), 100})
    values = sorted(draw(st.lists(tokens, min_size=len(levels), max_size=len(levels))))
    return Quantiles(quantiles=dict(zip(levels, values, strict=True)))


@given(spec=specs(), count=st.integers(0, 60), seed=st.integers(0, 9))
def test_draws_are_whole_positive_and_within_the_bounds(spec: Lengths, count: int, seed: int) -> None:
    drawn = lengths.draw(spec, count, generator(seed, "x"))
    assert drawn.dtype == np.int64
    assert len(drawn) == count
    assert all(1 <= lengths.shortest(spec) <= value <= lengths.longest(spec) for value in drawn.tolist())


@given(spec=specs(), bound=st.integers(1, 200_000))
def test_a_bound_keeps_the_part_below_it(spec: Lengths, bound: int) -> None:
    share = lengths.share_within(spec, bound)
    assert 0 <= share <= 1
    assert (share == 0) == (bound < lengths.shortest(spec))
    if share > 0:
        assert lengths.draw(spec, 20, generator(1, "x"), bound).max() <= bound


def test_given_quantiles_come_out() -> None:
    drawn = np.sort(lengths.draw(AZURE, 10_000, generator(3, "x")))
    for percent, tokens in AZURE.quantiles.items():
        assert drawn[min(9_999, int(percent * 100))] == pytest.approx(tokens, rel=0.01)


def test_piecewise_log_linear_with_half_the_lowest_at_one_percent() -> None:
    levels = np.array([0.0, 0.01, 0.055, 0.1, 0.3, 1.0])
    between = round(math.exp((math.log(103.5) + math.log(207)) / 2))
    expected = [104, 104, between, 207, round(math.sqrt(207 * 1020)), 14050]
    assert lengths.quantile(AZURE, levels).tolist() == pytest.approx(expected, abs=1)


def test_share_within_is_the_inverse_of_the_quantile() -> None:
    assert lengths.share_within(AZURE, 1020) == pytest.approx(0.5, abs=0.001)
    assert lengths.share_within(Range(range=(1, 10)), 4) == 0.4
    assert lengths.share_within(12, 11) == 0
    assert lengths.share_within(12, None) == 1


def test_few_draws_cover_a_range() -> None:
    slices = [(value - 1) // 100 for value in lengths.draw(Range(range=(1, 800)), 8, generator(0, "x")).tolist()]
    assert sorted(slices) == list(range(8))
    assert slices != sorted(slices), "in shuffled order"


def test_streams_differ_by_purpose_and_repeat_by_seed() -> None:
    def draws(*purpose: str) -> list[int]:
        return lengths.draw(AZURE, 50, generator(5, *purpose)).tolist()

    assert draws("a", "input") == draws("a", "input")
    assert draws("a", "input") != draws("a", "output")
    assert draws("ab", "c") != draws("a", "bc")
