from typing import Any

import pytest

from loadgen.emulator.arm import FLAGS, Emulated, emulated
from loadgen.emulator.profile import Profile
from loadgen.errors import UserError

STEP = {
    "fixed_s": 0.001,
    "weight_bandwidth_bytes_per_s": 1e6,
    "attention_bandwidth_bytes_per_s": 1e6,
    "sequence_s": 0.5,
}
MODEL = {"name": "m", "layers": 2, "kv_heads": 1, "head_dim": 8, "weight_bytes": 1000, "max_model_len": 64}


def small(**sections: Any) -> Profile:
    """64 bytes per token in bfloat16; blocks of 16 tokens: 62 of them unless a section says otherwise."""
    content = {
        "name": "small",
        "source": "planted",
        "model": MODEL,
        "memory": {"kv_cache_bytes": 64_000},
        "step": STEP,
        "formats": {"bfloat16": {"backend": "A", "other_backends": {"B": {"sequence_s": 1}}}, "fp8": {"backend": "B"}},
    }
    return Profile.model_validate(content | sections)


def arm(profile: Profile | None = None, **flags: str) -> Emulated:
    return emulated(profile or small(), {name.replace("_", "-"): value for name, value in flags.items()})


def test_an_engine_without_flags_is_the_profiles_own() -> None:
    found = arm()
    assert (found.kv_dtype, found.format.backend, found.served_name, found.max_model_len) == ("bfloat16", "A", "m", 64)
    assert (found.limits.blocks, found.capacity_tokens, found.kv_cache_bytes) == (62, 992, 64_000)
    assert (found.limits.max_num_seqs, found.limits.max_num_batched_tokens) == (256, 8192)
    assert (found.limits.chunked_prefill, found.limits.prefix_caching) == (True, False)


def test_flags_come_before_the_profile() -> None:
    found = arm(
        kv_cache_dtype="fp8",
        max_model_len="32",
        max_num_seqs="4",
        max_num_batched_tokens="33",
        block_size="8",
        kv_cache_memory_bytes="32000",
        enable_prefix_caching="true",
        enable_chunked_prefill="false",
        served_model_name="s",
        model="x",
    )
    assert (found.kv_dtype, found.served_name, found.max_model_len, found.kv_cache_bytes) == ("fp8", "s", 32, 32_000)
    limits = found.limits
    assert (limits.blocks, limits.block_tokens, limits.max_num_seqs, limits.max_num_batched_tokens) == (125, 8, 4, 33)
    assert (limits.prefix_caching, limits.chunked_prefill) == (True, False)
    assert arm(model="x").served_name == "x"


def test_capacity_is_what_the_engine_takes_less_weights_and_reserve() -> None:
    profile = small(memory={"total_bytes": 10_000, "utilization": 0.9, "reserved_bytes": 500})
    assert arm(profile).kv_cache_bytes == 10_000 * 0.9 - 1000 - 500
    assert arm(profile).limits.blocks == 7500 // (64 * 16)
    assert arm(profile, kv_cache_dtype="fp8").limits.blocks == 7500 // (32 * 16)
    assert arm(profile, gpu_memory_utilization="0.8").kv_cache_bytes == 6500


def test_a_residual_window_takes_a_ring_of_16_bits_for_every_slot() -> None:
    profile = small(formats={"fp8": {"backend": "B", "residual_tokens": 10}})
    found = arm(profile, kv_cache_dtype="fp8", max_num_seqs="20")
    assert found.limits.residual_tokens == 10
    assert found.limits.blocks == (64_000 - 10 * (64 - 32) * 20) // (32 * 16)
    assert found.cost.residual_bytes_per_token == 64


@pytest.mark.parametrize(
    ("formats", "asked", "got"),
    [
        (("bfloat16",), "auto", "bfloat16"),
        (("fp8",), "fp8_e4m3", "fp8"),
        (("fp8", "fp8_e4m3"), "fp8_e4m3", "fp8_e4m3"),
        (("fp8_e5m2",), "fp8_e5m2", "fp8_e5m2"),
    ],
)
def test_names_that_mean_the_same_format(formats: tuple[str, ...], asked: str, got: str) -> None:
    assert arm(small(formats={name: {"backend": "A"} for name in formats}), kv_cache_dtype=asked).kv_dtype == got


def test_another_backend_reads_the_format_at_its_own_costs() -> None:
    assert (arm().cost.sequence_s, arm(attention_backend="auto").format.backend) == (0.5, "A")
    other = arm(attention_backend="B")
    assert (other.format.backend, other.cost.sequence_s, other.capacity_tokens) == ("B", 1.0, 992)
    assert other.profile.formats["fp8"] == small().formats["fp8"]


def test_slots_that_nobody_asked_for_yield_to_the_budget() -> None:
    assert arm(max_num_batched_tokens="100").limits.max_num_seqs == 100


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"enforce-eager": "true"}, "enforce-eager=true: the emulator has no such flag; known: kv-cache-dtype, "),
        ({"max-num-seqs": "0"}, "max-num-seqs=0: should be a whole number of sequences"),
        ({"max-num-seqs": "many"}, "max-num-seqs=many: should be a whole number of sequences"),
        ({"block-size": "1.5"}, "block-size=1.5: should be a whole number of tokens"),
        ({"kv-cache-memory-bytes": "1GB"}, "kv-cache-memory-bytes=1GB: should be a whole number of bytes"),
        ({"gpu-memory-utilization": "1.1"}, "gpu-memory-utilization=1.1: should be above 0 and at most 1"),
        ({"gpu-memory-utilization": "nan"}, "gpu-memory-utilization=nan: should be above 0 and at most 1"),
        ({"enable-prefix-caching": "yes"}, "enable-prefix-caching=yes: should be true or false"),
        ({"kv-cache-dtype": "nvfp4"}, "kv-cache-dtype=nvfp4: profile small has no such format; it has bfloat16, fp8"),
        ({"attention-backend": "C"}, "attention-backend=C: profile small reads bfloat16 through A, B only"),
        (
            {"max-num-seqs": "9", "max-num-batched-tokens": "8"},
            "max-num-seqs=9: should be at most max-num-batched-tokens (8)",
        ),
        (
            {"enable-chunked-prefill": "false", "max-num-batched-tokens": "63"},
            "max-num-batched-tokens=63: should be at least max-model-len (64) without chunked prefill",
        ),
        (
            {"kv-cache-memory-bytes": "5119"},
            "profile small: max-model-len 64: the bfloat16 cache holds 48 tokens, less than one such sequence; "
            "lower max-model-len or give more memory",
        ),
    ],
)
def test_what_is_wrong_with_flags_is_said(flags: dict[str, str], complaint: str) -> None:
    with pytest.raises(UserError) as caught:
        emulated(small(), flags)
    (line,) = caught.value.complaints
    assert line.startswith(complaint)


def test_every_wrong_flag_has_its_line_and_the_callers_own_are_left_alone() -> None:
    with pytest.raises(UserError) as caught:
        emulated(small(), {"max-num-seqs": "0", "block-size": "x", "fault": "reset"}, own=frozenset({"fault"}))
    assert len(caught.value.complaints) == 2
    assert emulated(small(), {"fault": "reset"}, own=frozenset({"fault"})).flags == {"fault": "reset"}


def test_the_smallest_cache_holds_one_sequence_and_the_null_block() -> None:
    assert arm(kv_cache_memory_bytes=str(5 * 16 * 64)).limits.blocks == 5


def test_every_flag_says_what_it_does() -> None:
    assert all(flag.meaning and flag.should for flag in FLAGS.values())


def test_models_of_one_seed_take_the_same_time() -> None:
    profile = small(noise={"step": 0.1, "start": 0.1})
    first, same, other = (arm(profile).model(seed=(seed,)).step(0.0).took_s for seed in (1, 1, 2))
    assert first == same != other
