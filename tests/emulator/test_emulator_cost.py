from dataclasses import replace
from typing import Any

import pytest

from loadgen.emulator.cost import StepCost, Work, break_even_tokens

BARE = StepCost(fixed_s=0.0, bytes_per_token=0.0, attention_bandwidth_bytes_per_s=1.0)
WORK = Work(
    sequences=3, new_tokens=50, prefill_tokens=48, context_tokens=1000, residual_tokens=100, prefill_pairs=1152.0
)


@pytest.mark.parametrize(
    ("terms", "seconds"),
    [
        ({"fixed_s": 0.25}, 0.25),
        ({"weight_bytes": 8.0, "weight_bandwidth_bytes_per_s": 4.0}, 2.0),
        ({"bytes_per_token": 2.0, "attention_bandwidth_bytes_per_s": 10.0}, 900 * 2 / 10),
        ({"bytes_per_token": 2.0, "attention_bandwidth_bytes_per_s": 10.0, "read_penalty": 3.0}, 900 * 2 / 10 * 3),
        ({"residual_bytes_per_token": 4.0, "attention_bandwidth_bytes_per_s": 10.0, "read_penalty": 3.0}, 100 * 4 / 10),
        ({"token_s": 0.5}, 25.0),
        ({"sequence_s": 0.5}, 1.5),
        ({"prefill_pair_s": 0.5}, 576.0),
        ({"conversion_step_s": 0.5}, 0.5),
        ({"conversion_stored_s": 0.5}, 25.0),
        ({"conversion_prefill_s": 0.5}, 24.0),
    ],
)
def test_each_term_counts_once_and_alone(terms: dict[str, Any], seconds: float) -> None:
    cost = replace(BARE, **terms)
    assert cost.seconds(WORK) == pytest.approx(seconds)
    whole = replace(cost, fixed_s=cost.fixed_s + 7.0)
    assert whole.seconds(WORK) == pytest.approx(seconds + 7.0)


def test_one_stream_decode_is_its_intercept_and_slope() -> None:
    cost = StepCost(
        fixed_s=1.0,
        weight_bytes=6.0,
        weight_bandwidth_bytes_per_s=3.0,
        bytes_per_token=8.0,
        attention_bandwidth_bytes_per_s=100.0,
        read_penalty=2.0,
        token_s=0.1,
        sequence_s=0.2,
        prefill_pair_s=9.0,
        conversion_step_s=0.3,
        conversion_stored_s=0.4,
        conversion_prefill_s=9.0,
    )
    assert cost.intercept_s == pytest.approx(4.0)
    assert cost.slope_s_per_token == pytest.approx(0.16)
    for context in (0, 1, 5000):
        work = Work(sequences=1, new_tokens=1, context_tokens=context)
        assert cost.seconds(work) == pytest.approx(cost.intercept_s + context * cost.slope_s_per_token)


@pytest.mark.parametrize(
    ("fixed_s", "bytes_per_token", "expected"),
    [(2.0, 5.0, 10.0), (0.5, 5.0, 0.0), (0.5, 10.0, 0.0), (1.0, 10.0, None), (2.0, 10.0, None), (0.5, 20.0, None)],
    ids=["dearer, flatter", "cheaper, flatter", "cheaper", "equal", "dearer", "cheaper at first only"],
)
def test_break_even(fixed_s: float, bytes_per_token: float, expected: float | None) -> None:
    base = replace(BARE, fixed_s=1.0, bytes_per_token=10.0, attention_bandwidth_bytes_per_s=50.0)
    test = replace(base, fixed_s=fixed_s, bytes_per_token=bytes_per_token)
    assert break_even_tokens(base, test) == (None if expected is None else pytest.approx(expected))
