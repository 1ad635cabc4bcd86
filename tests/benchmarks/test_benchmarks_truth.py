"""The truth suite itself: what it plants is what it says it plants."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from planted import break_even, causes, effects, equals
from planted.page import SECTIONS, summary
from planted.shares import clustered, share
from planted.trial import true_ratios

from loadgen.emulator.cost import Work

WORK = Work(sequences=3, new_tokens=40, prefill_tokens=37, context_tokens=900, prefill_pairs=700.0)


def test_wilsons_interval_by_hand():
    # 5 of 100, z = 1.96: center (0.05 + 0.019208) / 1.038416; half 1.96 sqrt(4.75e-4 + 9.604e-5) / 1.038416
    found = share([True] * 5 + [False] * 95)
    assert (found.lo, found.hi) == pytest.approx((0.066648 - 0.045109, 0.066648 + 0.045109), abs=1e-5)
    assert (found.judged(0, 0.05), found.judged(0, 0.02), found.judged(0, 0.04)) == ("met", "missed", "not told apart")


def test_rows_that_go_together_count_as_one():
    alone, together = clustered([[True], [False]] * 50), clustered([[True] * 20, [False] * 20] * 50)
    assert (together.value, together.total) == (0.5, 2000)
    assert together.hi - together.lo == pytest.approx(alone.hi - alone.lo)


def test_a_scaled_engine_takes_the_factor_in_every_step():
    for number in range(3):
        trial, size = effects.case(3, number)
        factor = trial.test.cost.seconds(WORK) / trial.base.cost.seconds(WORK)
        assert factor == pytest.approx(1 + size) or factor == pytest.approx(1 / (1 + size))
        truth = true_ratios(trial.plan, trial.base, trial.test, trial.slo)
        assert truth["one-stream", "itl_p50_s"] == pytest.approx(factor, rel=1e-3)


def test_equals_are_equal():
    for number in range(6):
        trial = equals.case(3, number)
        assert trial.base.cost == trial.test.cost
        assert trial.base.limits == trial.test.limits


def test_the_shipped_break_even_is_planted():
    assert break_even.case("steady")[1] == pytest.approx(7010, abs=1)


def test_absent_is_what_nothing_was_planted_for():
    seen = set()
    for number in range(12):
        made = causes.case(4, number)
        truth = causes.truths(made)
        assert (truth["backend"] == "absent") == (not made.kernel)
        assert (truth["conversion"] == "inseparable") == (made.kernel == "other")
        if made.kernel == "unfused":
            assert made.trial.test.cost.slope_s_per_token > made.trial.base.cost.slope_s_per_token
            assert truth["short context"] == "absent"
        seen |= set(truth.values())
    assert seen == {"matters", "slight", "absent", "inseparable"}


def test_cases_follow_from_the_seed():
    assert causes.case(4, 1) == causes.case(4, 1)
    assert causes.case(4, 1) != causes.case(5, 1)


@pytest.mark.parametrize(
    ("part", "outcome"), [("aa", equals.outcome), ("power", effects.outcome), ("causes", causes.outcome)]
)
def test_outcomes_become_a_section(part, outcome):
    cases = [outcome(3, number) for number in range(1)]
    lines, targets = SECTIONS[part]({3: cases})
    assert lines[0].startswith("## ")
    assert targets
    assert all(any(one.name in line or one.minor for line in summary(targets)) for one in targets)
    assert sum(line.startswith("| ") for line in lines) > 4
