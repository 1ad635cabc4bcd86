import numpy as np
import pytest
from hypothesis import given, strategies as st

from loadgen.engines.kv_held import BASE, held
from loadgen.engines.model_shape import Layer, ModelShape
from loadgen.engines.model_weights import Weights
from loadgen.errors import UserError
from loadgen.records import Request, Run, StagePlan, StageSpec
from loadgen.workload.conclusions import conclusions
from loadgen.workload.demand import Speeds, demand
from loadgen.workload.estimate import Budget, StageEstimate, at_context, stage_estimate, step

LLAMA_8B = ModelShape(name="llama", layers=(Layer(kv_heads=8, head_dim=128, value_dim=128),) * 32)
TOKEN = 131_072
FORMATS = [held(name, LLAMA_8B) for name in (BASE, "fp8", "int4_per_token_head")]
HALF = FORMATS[:2]
SPEEDS = Speeds(prefill_tokens_per_s=1_000, decode_gap_s=0.1)


def stage(prompt: int, output: int, *, count: int = 8, concurrency: int | None = 4, name: str = "a") -> StagePlan:
    requests = tuple(
        Request(index=index, runs=(Run(f"u:a:{index}", prompt),), output_tokens=output,
                due_s=None if concurrency else 0.0)
        for index in range(count)
    )  # fmt: skip
    spec = StageSpec(name=name, role="saturated" if concurrency else "open_loop", concurrency=concurrency)
    return StagePlan(spec=spec, warmup=(), requests=requests)


def estimated(
    plan: StagePlan, budget_tokens: float | None, weights_bytes: float | None, formats: list = FORMATS
) -> StageEstimate:
    weights = None if weights_bytes is None else Weights(total_bytes=weights_bytes, source="given")
    budget = None
    if budget_tokens is not None:
        budget = Budget(memory_bytes=budget_tokens * TOKEN, utilization=1.0, weights_bytes=0.0)
    return stage_estimate(plan, demand(plan, SPEEDS), formats, budget, weights)


def test_what_is_left_for_the_cache_is_handed_out_in_blocks() -> None:
    budget = Budget(memory_bytes=100e9, utilization=0.9, weights_bytes=16e9, reserved_bytes=4e9, block_tokens=16)
    assert budget.cache_bytes == 70e9
    assert budget.tokens(FORMATS[0], 4096) == int(70e9 / TOKEN / 16) * 16
    assert budget.tokens(FORMATS[1], 4096) == int(70e9 / (TOKEN / 2) / 16) * 16
    assert budget.tokens(FORMATS[0], 1) == budget.tokens(FORMATS[0], 10_000), "without windows contexts do not matter"


def test_tokens_that_fit_depend_on_the_context_where_there_are_windows() -> None:
    shape = ModelShape(name="x", layers=(Layer(kv_heads=1, head_dim=64, value_dim=64, window=100),) * 3
                       + (Layer(kv_heads=1, head_dim=64, value_dim=64),))  # fmt: skip
    budget = Budget(memory_bytes=1e9, utilization=1.0, weights_bytes=0.0)
    assert budget.tokens(held(BASE, shape), 100) == int(1e9 / (4 * 256))
    assert budget.tokens(held(BASE, shape), 10_000) == int(1e9 / (256 * (10_000 + 300)) * 10_000)


def test_no_room_is_one_line_that_says_how_much_would_do() -> None:
    budget = Budget(memory_bytes=16e9, utilization=0.5, weights_bytes=9e9, reserved_bytes=1e9)
    with pytest.raises(UserError, match=r"^--memory: 16,000,000,000 bytes at utilization 0.5 .* above 20,000,000,000$"):
        budget.check()


def test_a_step_reads_weights_and_every_streams_cache() -> None:
    weights = Weights(total_bytes=400 * TOKEN, source="given")
    one = step(*HALF, np.array([100.0, 300.0]), np.array([0.75, 0.25]), 4, weights)
    assert one.cache_bytes == 4 * 150 * TOKEN / 2
    assert one.cache_ratio == pytest.approx(300 / 700)
    assert one.most_speedup == pytest.approx((400 + 600) / (400 + 300))
    base = step(HALF[0], HALF[0], np.array([150.0]), np.ones(1), 4, weights)
    assert base.most_speedup == 1
    assert base.halved_speedup == pytest.approx(one.most_speedup), "fp8 is half of it"


def test_a_cache_that_is_turned_back_gains_nothing() -> None:
    weights = Weights(total_bytes=400 * TOKEN, source="given")
    formats = [FORMATS[0], held("transformers:int4", LLAMA_8B)]
    assert at_context(formats, 4096, weights)[1].most_speedup < 1


@given(
    context=st.floats(1, 1e6), streams=st.integers(1, 1_000), weights_bytes=st.floats(1, 1e13),
    name=st.sampled_from(["fp8", "nvfp4", "int4_per_token_head", "turboquant_k8v4", "kivi:int2_g32"]),
)  # fmt: skip
def test_the_bound_is_amdahls(context: float, streams: int, weights_bytes: float, name: str) -> None:
    weights, test = Weights(total_bytes=weights_bytes, source="given"), held(name, LLAMA_8B)
    where = (np.array([context]), np.ones(1), streams, weights)
    base = step(FORMATS[0], FORMATS[0], *where)
    ratio = float(FORMATS[0].sequence_bytes(context) / test.sequence_bytes(context))
    share = base.cache_ratio
    bound = step(FORMATS[0], test, *where).most_speedup
    assert bound == pytest.approx(1 / (1 - share + share / ratio))
    assert 1 <= bound <= ratio * (1 + 1e-12)


def test_a_stage_in_each_format() -> None:
    # 4 in flight, each of 110 tokens at its end; decode steps read 105 on average.
    one = estimated(stage(100, 10), 300, 400 * TOKEN)
    assert (one.in_flight, one.peak_tokens, one.request_tokens, one.context_tokens) == (4, 440, 110, 105)
    assert [row.held for row in one.formats] == [2, 4, 4]
    assert one.base.peak_bytes == 440 * TOKEN
    assert one.base.of_cache_ratio == pytest.approx(440 / 300)
    assert one.base.mean_bytes == pytest.approx(one.mean_tokens * TOKEN)
    assert [row.real_ratio for row in one.formats] == pytest.approx([1, 2, 131_072 / 34_816])
    # A batch is not larger than what 16 bits hold.
    assert [step.streams for step in one.base.steps] == [1, 2]
    assert one.base.steps[1].cache_ratio == pytest.approx(210 / 610)
    assert [step.streams for step in estimated(stage(100, 10), None, 1.0).base.steps] == [1, 4]
    assert [step.streams for step in estimated(stage(100, 10, concurrency=1), None, 1.0).base.steps] == [1]
    open_loop = estimated(stage(100, 10, concurrency=None), None, 1.0)
    assert [step.streams for step in open_loop.base.steps] == [1, 8]


def test_long_outputs_weigh_more_in_a_mean_step() -> None:
    requests = (
        Request(index=0, runs=(Run("u:0", 100),), output_tokens=10),
        Request(index=1, runs=(Run("u:1", 1_000),), output_tokens=90),
    )
    plan = StagePlan(spec=StageSpec(name="a", role="one_stream", concurrency=1), warmup=(), requests=requests)
    assert estimated(plan, None, None).context_tokens == pytest.approx(0.1 * 105 + 0.9 * 1_045)


def test_nothing_to_free() -> None:
    told = conclusions([estimated(stage(100, 10), 10_000, 1e12)], FORMATS)
    assert (told.memory_binds, told.steps_gain, told.nothing_to_free) == (False, False, True)
    assert told.sentences[0] == (
        "a: the whole demand fits in 16 bits with room: its peak takes 4.4 % of the cache's memory; what a smaller "
        "format frees would stay empty"
    )
    assert told.sentences[1].startswith("a: weights dominate each step: the cache is 0.0055 % of the bytes")
    assert told.sentences[-1].startswith("There is nothing to free here")


@pytest.mark.parametrize(
    ("budget_tokens", "weights_bytes", "last"),
    [
        (10_000, 1.0, "No stage needs the memory: only shorter steps can pay"),
        (300, 1e12, "Steps will hardly get shorter: only more requests at once can pay."),
        (300, 1.0, "Both more requests at once and shorter steps can pay"),
        (300, None, "Give --weights to learn"),
        (None, 1.0, "Give --memory to learn"),
        (None, None, "Give --memory and --weights to learn"),
    ],
)
def test_what_can_pay_is_said_last(budget_tokens: float | None, weights_bytes: float | None, last: str) -> None:
    told = conclusions([estimated(stage(100, 10), budget_tokens, weights_bytes)], FORMATS)
    assert told.sentences[-1].startswith(last)
    assert told.nothing_to_free is (None if "Give" in last else False)


def test_a_stage_that_does_not_fit_says_what_each_format_holds() -> None:
    told = conclusions([estimated(stage(100, 10), 300, None)], FORMATS)
    assert told.sentences[0] == (
        "a: its peak asks for 147 % of the cache's memory in 16 bits, which hold 2 of 4 requests; fp8 4, "
        "int4_per_token_head 4"
    )


def test_a_stage_that_only_just_fits_is_not_said_to_hold_so_many_of_so_many() -> None:
    told = conclusions([estimated(stage(100, 10), 448, None)], FORMATS)
    assert told.sentences[0].endswith("of the cache's memory in 16 bits, which just hold all 4 requests")


def test_contexts_short_of_a_residual_or_a_window_are_told() -> None:
    formats = [FORMATS[0], held("kivi:int2_g32", LLAMA_8B)]
    told = conclusions([estimated(stage(60, 10), None, None, formats)], formats)
    assert told.sentences[0].startswith("a: kivi:int2_g32 keeps the newest 128 tokens in 16 bits, and requests of 70")
    assert not any("keeps the newest" in line for line in
                   conclusions([estimated(stage(6_000, 10), None, None, formats)], formats).sentences)  # fmt: skip
    slid = ModelShape(name="x", layers=(Layer(kv_heads=1, head_dim=64, value_dim=64, window=512),) * 2)
    windows = [held(BASE, slid)]
    told = conclusions([estimated(stage(100, 10), None, None, windows)], windows)
    assert told.sentences[0].startswith("a: requests of 110 tokens are short of the window of 512")


def test_lengths_in_flight_at_the_peak() -> None:
    requests = (
        Request(index=0, runs=(Run("u:0", 1_000),), output_tokens=100),
        Request(index=1, runs=(Run("u:1", 10),), output_tokens=1),
        Request(index=2, runs=(Run("u:2", 900),), output_tokens=1),
    )
    plan = StagePlan(spec=StageSpec(name="a", role="saturated", concurrency=2), warmup=(), requests=requests)
    assert demand(plan, SPEEDS).lengths_tokens == (1_100, 901)
    assert demand(plan, SPEEDS, 16).lengths_tokens == (1_104, 912)
