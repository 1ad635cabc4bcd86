import pytest

from loadgen.engines.kv_formats import (
    KV_FORMATS,
    OTHER_FORMATS,
    Residual,
    bytes_per_token,
    capacity_ratio,
    capacity_ratio_range,
    likely_capacity_ratio,
    residual_ratio,
)

LLAMA_8B = {"layers": 32, "kv_heads": 8, "head_dim": 128}
ALL = {**KV_FORMATS, **OTHER_FORMATS}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bfloat16", 131_072),
        ("float16", 131_072),
        ("fp8", 65_536),
        ("fp8_e5m2", 65_536),
        ("int8_per_token_head", 67_584),
        ("fp8_per_token_head", 67_584),
        ("int4_per_token_head", 34_816),
        ("nvfp4", 36_864),
    ],
)
def test_bytes_per_token_of_llama_3_1_8b(name, expected):
    assert bytes_per_token(name, **LLAMA_8B) == expected


@pytest.mark.parametrize(
    ("name", "at_128", "bytes_at_128", "at_64"),
    [
        ("bfloat16", 1.0, 512, 1.0),
        ("fp8", 2.0, 256, 2.0),
        ("tensorrt-llm:fp8", 2.0, 256, 2.0),
        ("int8_per_token_head", 1.939, 264, 1.882),
        ("int4_per_token_head", 3.765, 136, 3.556),
        ("nvfp4", 3.556, 144, 3.556),
        ("nvfp4_4over6", 3.556, 144, 3.556),
        ("lmdeploy:int8", 1.939, 264, 1.882),
        ("lmdeploy:int4", 3.765, 136, 3.556),
        ("transformers:int4", 3.556, 144, 3.556),
        ("transformers:int2", 6.4, 80, 6.4),
        ("kivi:int2_g64", 6.4, 80, 6.4),
        ("kivi:int2_g32", 5.333, 96, 5.333),
        ("sglang:mxfp8", 1.939, 264, 1.939),
        ("llama.cpp:q8_0", 1.882, 272, 1.882),
        ("llama.cpp:q5_1", 2.667, 192, 2.667),
        ("llama.cpp:q5_0", 2.909, 176, 2.909),
        ("llama.cpp:q4_1", 3.2, 160, 3.2),
        ("llama.cpp:q4_0", 3.556, 144, 3.556),
        ("llama.cpp:iq4_nl", 3.556, 144, 3.556),
        ("turboquant_k8v4", 2.612, 196, 2.56),
        ("turboquant_4bit_nc", 3.821, 134, 3.657),
        ("turboquant_k3v4_nc", 4.339, 118, 4.129),
        ("turboquant_3bit_nc", 5.020, 102, 4.741),
        ("ultraquant_4bit", 3.765, 136, 3.765),
    ],
)
def test_the_table_of_formats_counts_the_scales(name, at_128, bytes_at_128, at_64):
    form = ALL[name]
    assert form.content_bytes(128) == bytes_at_128
    assert 512 / form.content_bytes(128) == pytest.approx(at_128, abs=5e-4)
    assert 256 / form.content_bytes(64) == pytest.approx(at_64, abs=5e-4)
    if name in KV_FORMATS:
        assert capacity_ratio("bfloat16", name, head_dim=128) == pytest.approx(at_128, abs=5e-4)


def test_a_value_may_be_of_another_size_than_a_key():
    assert ALL["bfloat16"].content_bytes(192, 128) == 2 * (192 + 128)
    assert ALL["nvfp4"].content_bytes(192, 128) == (192 + 128) * (1 / 2 + 1 / 16)


def test_the_tiny_model_has_32_kib_per_token():
    assert bytes_per_token("bfloat16", layers=8, kv_heads=8, head_dim=128) == 32 * 1024


def test_auto_unknown_formats_and_those_of_other_engines_are_not_guessed():
    assert bytes_per_token("auto", **LLAMA_8B) is None
    assert bytes_per_token("llama.cpp:q8_0", **LLAMA_8B) is None
    assert capacity_ratio("auto", "fp8", head_dim=128) is None
    assert capacity_ratio_range("bfloat16", "int2") is None


def test_range_spans_the_head_sizes():
    assert capacity_ratio_range("bfloat16", "fp8") == (2.0, 2.0)
    low, high = capacity_ratio_range("bfloat16", "int8_per_token_head")
    assert low == pytest.approx(256 / 136)
    assert high == pytest.approx(1024 / 520)


@pytest.mark.parametrize("name", sorted(KV_FORMATS))
def test_the_likely_ratio_is_near_at_other_head_sizes(name):
    low, high = capacity_ratio_range("bfloat16", name)
    assert likely_capacity_ratio("bfloat16", name) == pytest.approx(low, rel=0.06)
    assert likely_capacity_ratio("bfloat16", name) == pytest.approx(high, rel=0.06)


@pytest.mark.parametrize("name", sorted(ALL))
def test_what_is_kept_beside_the_values_makes_a_format_larger_than_its_name(name):
    real = 256 / ALL[name].content_bytes(64)
    assert 1 <= real <= ALL[name].nominal_ratio


def test_names_of_other_engines_are_no_names_of_vllm():
    assert all(":" in name for name in OTHER_FORMATS)
    assert not any(":" in name for name in KV_FORMATS)


@pytest.mark.parametrize(
    ("bits", "ratio"),
    [(4, 16 / 7), (4.25, 2.226), (4.5, 2.169), (5, 2.065), (2, 2.909), (2.5, 2.723), (3, 2.560)],
)
def test_512_tokens_with_128_of_them_in_16_bits(bits, ratio):
    assert residual_ratio(512, bits, keys_kept=128, values_kept=128) == pytest.approx(ratio, abs=5e-4)


@pytest.mark.parametrize(
    ("tokens", "ratio"),
    [(256, 1.56), (512, 2.17), (1024, 2.695), (2048, 3.07), (4096, 3.29), (8192, 3.42), (32768, 3.52)],
)
def test_the_residual_fades_with_the_context(tokens, ratio):
    assert residual_ratio(tokens, 4.5, keys_kept=128, values_kept=128) == pytest.approx(ratio, abs=5e-3)


def test_transformers_quantizes_the_whole_prompt_and_then_lets_128_pile_up():
    assert residual_ratio(512, 4.5, keys_kept=0, values_kept=0) == pytest.approx(3.556, abs=5e-4)
    cycle = ALL["transformers:int4"].residual
    assert cycle.most(cycle.keys) == 63.5
    mean = residual_ratio(512, 4.5, keys_kept=cycle.most(cycle.keys), values_kept=cycle.most(cycle.values))
    assert mean == pytest.approx(2.70, abs=5e-3)


def test_kivi_keeps_values_always_and_keys_in_turn():
    assert ALL["kivi:int2_g32"].residual == Residual(tokens=128, keys="cycle", values="window")
    assert residual_ratio(512, 2, keys_kept=0, values_kept=128) == pytest.approx(4.27, abs=5e-3)
    assert residual_ratio(512, 3, keys_kept=0, values_kept=128) == pytest.approx(3.46, abs=5e-3)


def test_within_the_residual_nothing_shrinks():
    assert residual_ratio(100, 2, keys_kept=128, values_kept=128) == 1
