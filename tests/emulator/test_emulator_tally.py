"""What the engine counts about itself, against counts made by hand from its steps."""

from collections.abc import Iterable

import pytest

from loadgen.emulator.cost import StepCost
from loadgen.emulator.model import Limits, Model, Sequence
from loadgen.emulator.noise import Noise, NoiseSpec
from loadgen.emulator.tally import COUNTERS, Tally
from loadgen.engines import vllm

SECOND = StepCost(fixed_s=1.0, bytes_per_token=0.0, attention_bandwidth_bytes_per_s=1.0)


def tallied(sequences: Iterable[Sequence], **limits: int | bool) -> Tally:
    """One step a second, until all have ended."""
    held = Limits(**{"blocks": 101, "block_tokens": 4, "max_num_batched_tokens": 8, **limits})
    model, tally = Model(held, SECOND, Noise(NoiseSpec(), seed=(0,))), Tally()
    for sequence in sequences:
        model.add(sequence)
    now_s = 0.0
    while model.busy:
        step = model.step(now_s)
        tally.note(step, model)
        now_s = step.ended_s
    return tally


def asked(prompt: int, output: int, arrived_s: float = 0.0, contents: tuple[int, ...] = ()) -> Sequence:
    return Sequence(prompt_tokens=prompt, output_tokens=output, arrived_s=arrived_s, contents=contents)


def test_its_names_are_those_that_the_engines_metrics_become() -> None:
    assert {*COUNTERS, *Tally().gauges} == set(vllm.ENGINE.metrics)
    assert set(Tally().scrape().values) == set(vllm.ENGINE.metrics)


def test_times_of_one_request_add_up() -> None:
    counted = tallied([asked(20, 3, arrived_s=-0.5)]).counters
    # prompt: three steps of 8, 8 and 4 tokens; the token of the third is out at 3.0, the others at 4.0 and 5.0
    assert (counted["queue_sum_s"], counted["prefill_sum_s"], counted["decode_sum_s"]) == (0.5, 3.0, 2.0)
    assert (counted["ttft_sum_s"], counted["ttft_count"]) == (3.5, 1)
    assert (counted["itl_sum_s"], counted["itl_count"]) == (2.0, 2)
    assert {counted[f"{name}_count"] for name in ("queue", "prefill", "decode")} == {1}
    assert (counted["prompt_tokens"], counted["generation_tokens"], counted["requests_finished"]) == (20, 3, 1)


def test_an_iteration_counts_where_it_yields_tokens_with_the_prompts_that_are_done() -> None:
    counted = tallied([asked(20, 3)]).counters
    assert (counted["iteration_tokens_count"], counted["iteration_tokens_sum"]) == (3, 20 + 1 + 1 + 1)


def test_what_the_prefix_cache_held_was_not_computed() -> None:
    same = (1, 2, 3)
    counted = tallied([asked(12, 1, contents=same), asked(12, 1, contents=same)], prefix_caching=True).counters
    assert (counted["prefix_queries"], counted["prefix_hits"]) == (24, 8)
    assert counted["prompt_tokens"] == 24
    assert counted["iteration_tokens_sum"] == 12 + 4 + 2


def test_times_of_a_request_are_known_when_it_ends_and_gauges_as_of_the_last_step() -> None:
    model, tally = Model(Limits(blocks=9, block_tokens=4), SECOND, Noise(NoiseSpec(), seed=(0,))), Tally()
    model.add(asked(5, 2))
    model.add(asked(28, 1))
    tally.note(model.step(0.0), model)
    assert (tally.counters["ttft_count"], tally.counters["queue_count"]) == (1, 0)
    assert tally.gauges == {"kv_usage_ratio": pytest.approx(2 / 8), "running": 1.0, "waiting": 1.0}
    tally.note(model.step(1.0), model)
    assert (tally.counters["queue_count"], tally.gauges["running"]) == (1, 0.0)


def test_preemptions_are_counted() -> None:
    assert tallied([asked(7, 4), asked(7, 4)], blocks=5, max_num_batched_tokens=64).counters["preemptions"] == 1
