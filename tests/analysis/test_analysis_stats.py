import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from loadgen.analysis import stats


def test_interval_of_a_ratio_by_hand():
    # logs: ln 100, ln 110 | ln 150, ln 165; deviations +-ln(1.1)/2; pooled s^2 = ln(1.1)^2 / 2 = 0.0045420;
    # SE = sqrt(s^2 (1/2 + 1/2)) = 0.0673943; t(0.975, 2) = 4.3026527; half = 0.2899744
    found = stats.ratio([100, 110], [150, 165])
    assert found.estimate.center == pytest.approx(1.5)
    assert found.estimate.lo == pytest.approx(1.5 * math.exp(-0.2899744), rel=1e-5)
    assert found.estimate.hi == pytest.approx(1.5 * math.exp(0.2899744), rel=1e-5)
    assert found.estimate.n == 2
    assert found.decided


def test_unequal_numbers_of_blocks_are_pooled():
    # SS = 2 (0.1^2) in three blocks, 2 (0.05^2) in two; s^2 = 0.025 / 3; SE^2 = s^2 (1/3 + 1/2); t = 0.3 / SE = 3.6
    base = [math.exp(v) for v in (-0.1, 0.0, 0.1)]
    test = [math.exp(v) for v in (0.25, 0.35)]
    error = math.sqrt(0.025 / 3 * (1 / 3 + 1 / 2))
    found = stats.ratio(base, test)
    assert found.estimate.hi == pytest.approx(math.exp(0.3 + 3.1824463 * error), rel=1e-6)
    assert found.estimate.n == 2
    # three degrees of freedom have a closed form: 1 - 2/pi (a + sin a cos a), tan a = t / sqrt(3)
    angle = math.atan(3.6 / math.sqrt(3))
    assert found.p == pytest.approx(1 - 2 / math.pi * (angle + math.sin(angle) * math.cos(angle)))


def test_mean_and_geometric_mean_by_hand():
    # mean 11, sd sqrt(2), t(0.975, 1) = 12.7062047, half = 12.7062047
    found = stats.mean([10, 12])
    assert (found.center, found.lo, found.hi) == pytest.approx((11, 11 - 12.7062047, 11 + 12.7062047))
    assert stats.geometric_mean([4, 9]).center == pytest.approx(6)
    assert stats.geometric_mean([0, 4]).center == pytest.approx(2)  # a zero has no log


def test_what_is_missing_is_said():
    assert stats.mean([]).warnings == ("not known",)
    assert stats.mean([None, 3.0]).warnings == ("not known in 1 of 2 blocks", "1 block: an interval needs at least 2")
    one = stats.ratio([100], [150, 151])
    assert one.estimate.center == pytest.approx(100**-1 * math.sqrt(150 * 151))
    assert one.estimate.lo is None
    assert one.p is None
    assert not one.decided
    assert "zero" in stats.ratio([0.0, 1.0], [1.0, 1.0]).estimate.warnings[0]
    assert stats.ratio([None], [1.0]).estimate.center is None
    assert stats.ratio([math.nan, 1.0], [1.0, 1.0]).estimate.n == 1


def test_blocks_without_any_spread():
    assert stats.ratio([2.0, 2.0], [2.0, 2.0]).p == 1.0
    assert stats.ratio([2.0, 2.0], [3.0, 3.0]).decided


def test_spread_within_blocks_is_the_least_spread():
    tight = stats.ratio([100.0, 100.1], [103.0, 103.1])
    assert tight.decided
    floored = stats.ratio([100.0, 100.1], [103.0, 103.1], floor_variance=0.03**2)
    assert not floored.decided
    assert "within blocks" in floored.estimate.warnings[0]
    assert floored.estimate.hi == pytest.approx(floored.estimate.center * math.exp(4.3026527 * 0.03), rel=1e-5)


def test_within_blocks_takes_off_what_parts_and_blocks_have_in_common():
    parts, blocks = np.array([1.0, 5.0, 20.0]), np.array([1.0, 1.3])
    product = np.outer(blocks, parts)
    assert stats.within_blocks([product.tolist()]) == pytest.approx(0, abs=1e-20)
    noisy = product * np.exp([[0.1, -0.1, 0.0], [-0.1, 0.1, 0.0]])
    # residuals are the exponents: SS = 4 (0.1^2); dof = 1 x 2; 3 parts
    assert stats.within_blocks([noisy.tolist()]) == pytest.approx(0.04 / 2 / 3)
    assert stats.within_blocks([[[1.0, 2.0]], []]) == 0


def test_within_blocks_estimates_the_noise_of_a_block():
    rng = np.random.default_rng(5)
    found = [
        stats.within_blocks([np.exp(0.2 * rng.standard_normal((4, 10)) + rng.standard_normal(10)).tolist()] * 1)
        for _ in range(200)
    ]
    assert np.mean(found) == pytest.approx(0.2**2 / 10, rel=0.1)


def test_blocks_needed_would_have_decided():
    needed = stats.blocks_needed(math.log(1.1), 0.05)
    assert needed is not None
    half = stats.t_quantile(0.975, 2 * needed - 2) + stats.t_quantile(0.8, 2 * needed - 2)
    assert half * 0.05 * math.sqrt(2 / needed) <= math.log(1.1)
    assert stats.blocks_needed(1e-4, 0.05) is None
    assert stats.blocks_needed(0.0, 0.05) is None


def test_holm_by_hand():
    # sorted 0.01 < 0.05/3, 0.02 < 0.05/2, 0.2 > 0.05
    assert stats.holm([0.2, 0.01, None, 0.02]) == (False, True, False, True)
    # 0.02 > 0.05/3 stops everything
    assert stats.holm([0.04, 0.02, 0.03]) == (False, False, False)


@given(
    st.lists(st.floats(0.1, 1e3), min_size=2, max_size=8),
    st.lists(st.floats(0.1, 1e3), min_size=2, max_size=8),
    st.floats(0.01, 100),
)
def test_a_ratio_turns_around_and_knows_no_unit(base, test, scale):
    found, turned = stats.ratio(base, test).estimate, stats.ratio(test, base).estimate
    scaled = stats.ratio([v * scale for v in base], [v * scale for v in test]).estimate
    assert turned.center == pytest.approx(1 / found.center)
    assert scaled.center == pytest.approx(found.center)
    if found.hi < 1e200 and found.lo > 1e-200:
        assert turned.lo == pytest.approx(1 / found.hi)
        assert scaled.hi == pytest.approx(found.hi)
    assert found.lo <= found.center <= found.hi


@pytest.mark.parametrize("repeats", [2, 3, 4, 6])
@pytest.mark.parametrize("drift", [0.0, 0.01])
def test_equals_come_out_different_one_time_in_twenty(repeats, drift):
    rng = np.random.default_rng(repeats)
    runs = 1500
    order = np.array([arm for r in range(repeats) for arm in ((0, 1) if r % 2 == 0 else (1, 0))])
    wrong = 0
    for _ in range(runs):
        values = np.exp(0.08 * rng.standard_normal(2 * repeats) + drift * np.arange(2 * repeats))
        wrong += stats.ratio(values[order == 0].tolist(), values[order == 1].tolist()).decided
    # four standard errors of a binomial at 5 %: 0.05 + 4 sqrt(0.05 x 0.95 / 1500); drift only widens intervals
    assert wrong / runs < 0.0725
    if drift == 0:
        assert wrong / runs > 0.0275


def test_servers_that_stay_up_are_allowed_the_spread_of_their_starts():
    # blocks agree to 0.1 %: SE^2 = 1e-6; two starts of 1 % each: + 2e-4, dof 2 (2.01e-4 / 1e-6)^2 = 80,802: t = 1.96
    values = [math.exp(v) for v in (-0.001 / math.sqrt(2), 0.001 / math.sqrt(2))]
    found = stats.ratio(values, [1.02 * value for value in values], start_spread=0.01)
    assert math.log(found.estimate.hi / 1.02) == pytest.approx(1.96 * math.sqrt(2.01e-4), rel=1e-3)
    assert not found.decided
    assert any("a restart before each block narrows it" in warning for warning in found.estimate.warnings)
    assert found.blocks_needed is None  # more blocks of the same two processes would not show 2 %
    assert stats.ratio(values, [1.02 * value for value in values]).decided
    assert stats.ratio(values, [1.05 * value for value in values], start_spread=0.01).decided


def test_blocks_without_any_spread_leave_that_of_the_starts():
    found = stats.ratio([1.0, 1.0], [1.03, 1.03], start_spread=0.01)
    assert math.log((found.estimate.hi or 0) / 1.03) == pytest.approx(1.96 * 0.01 * math.sqrt(2), rel=1e-4)
    apart = stats.difference([1.0, 1.0], [1.03, 1.03], start_spread=0.01)
    assert (apart.estimate.hi or 0) - 0.03 == pytest.approx(1.96 * 0.01 * math.hypot(1, 1.03), rel=1e-4)


@pytest.mark.parametrize(("spread", "start", "dof"), [(1.0, 0.0, 6), (1.0, 1.0, 24), (0.0, 1.0, 1e6)])
def test_degrees_of_freedom_grow_with_the_share_that_is_known(spread, start, dof):
    assert stats.with_start(spread, 6, start) == pytest.approx((math.hypot(spread, start), dof))
