import numpy as np
import pytest

from loadgen.analysis import lines
from loadgen.analysis.lines import Fit


def test_a_line_through_stalls_and_two_heaps_of_contexts():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(100, 230, 400), rng.uniform(1500, 1630, 400)])
    y = 9e-3 + 2.8e-6 * x
    y *= np.exp(0.02 * rng.standard_normal(800))
    y[rng.choice(800, 80, replace=False)] += 0.2  # a tenth of the gaps stalls
    fit = lines.robust_line(x, y)
    assert fit is not None
    assert fit.intercept == pytest.approx(9e-3, rel=0.02)
    assert fit.slope == pytest.approx(2.8e-6, rel=0.05)


def test_no_line_without_spread():
    assert lines.robust_line(np.full(100, 5.0), np.ones(100)) is None
    assert lines.robust_line(np.arange(4.0), np.ones(4)) is None


def test_weighted_median():
    assert lines.weighted_median(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 10.0])) == 2.0


def test_bins_hold_every_point_in_order():
    x = np.arange(100.0)[::-1]
    found = lines.binned(x, x, bins=10)
    assert found.x.tolist() == pytest.approx([4.5 + 10 * k for k in range(10)])
    assert (found.lower < found.median).all()
    assert (found.median < found.upper).all()


def test_published_lines_of_an_h100_cross_at_7000():
    # vLLM blog 2026-04-22: 6.44 -> 6.58 ms, 4.37e-5 -> 2.37e-5 ms per token: 0.14 / 2.00e-5 = 7,000
    wobble = (0.9995, 1.0005, 1.0002, 0.9998)
    base = [Fit(intercept=6.44e-3 * w, slope=4.37e-8 * w) for w in wobble]
    test = [Fit(intercept=6.58e-3 * w, slope=2.37e-8 * w) for w in wobble]
    found = lines.crossing(base, test, 1000, 32000)
    assert found.root.center == pytest.approx(7000, rel=1e-6)
    assert 6000 < found.root.lo < 7000 < found.root.hi < 8000
    assert (found.slope_sign, found.sign_lo, found.sign_hi) == (-1, 1, -1)
    assert found.root.lo < lines.crossing(base[:2], test[:2], 1000, 32000).root.center


def test_fieller_by_hand():
    # only intercepts vary: d(x) = 1 - x +- t s; s^2 = 0.02, SE^2 = 0.02, t(0.975, 2) = 4.3026527
    base = [Fit(intercept=v, slope=2.0) for v in (0.9, 1.1)]
    test = [Fit(intercept=v, slope=1.0) for v in (1.9, 2.1)]
    half = 4.3026527 * np.sqrt(0.02)
    found = lines.crossing(base, test, 0, 10)
    assert (found.root.center, found.root.lo, found.root.hi) == pytest.approx((1, 1 - half, 1 + half))


def test_fieller_knows_that_intercepts_and_slopes_go_together():
    # every line of an arm passes through (1, 3) or (1, 2): at x = 1 there is no spread at all, so that the crossing at
    # x = 2 has d(x)^2 = (x - 2)^2 and t^2 var d(x) = c (x - 1)^2, c = 4.3026527^2 x 0.0002
    base = [Fit(intercept=3 - b, slope=b) for b in (1.99, 2.01)]
    test = [Fit(intercept=4 - b, slope=b) for b in (0.99, 1.01)]
    c = 4.3026527 * np.sqrt(0.0002)
    found = lines.crossing(base, test, 0, 10)
    assert found.root.center == pytest.approx(2)
    assert (found.root.lo, found.root.hi) == pytest.approx(((2 + c) / (1 + c), (2 - c) / (1 - c)))


def test_parallel_lines_have_no_crossing():
    rng = np.random.default_rng(2)
    base, test = (
        [Fit(intercept=1 + 0.01 * rng.standard_normal(), slope=1 + 0.01 * rng.standard_normal()) for _ in range(4)]
        for _ in range(2)
    )
    found = lines.crossing(base, test, 0, 1)
    assert found.root.lo is None
    assert found.slope_sign == 0
    single = lines.crossing(base[:1], test, 0, 1)
    assert single.root.warnings == ("an interval needs at least 2 blocks per arm",)


def test_interval_of_the_crossing_covers_the_truth():
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(400):
        made = [
            [
                Fit(intercept=a * (1 + 0.002 * rng.standard_normal()), slope=b * (1 + 0.01 * rng.standard_normal()))
                for _ in range(4)
            ]
            for a, b in ((6.44, 4.37e-5), (6.58, 2.37e-5))
        ]
        root = lines.crossing(made[0], made[1], 0, 30000).root
        covered += root.lo is not None and root.lo <= 7000 <= root.hi
    assert covered / 400 == pytest.approx(0.95, abs=4 * np.sqrt(0.05 * 0.95 / 400))
