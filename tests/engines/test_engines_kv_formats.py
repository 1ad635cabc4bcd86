import pytest

from loadgen.engines.kv_formats import KV_FORMATS, bytes_per_token, capacity_ratio, capacity_ratio_range

LLAMA_8B = {"layers": 32, "kv_heads": 8, "head_dim": 128}


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
    ("name", "at_128", "at_64"),
    [
        ("fp8", 2.0, 2.0),
        ("int8_per_token_head", 1.939, 1.882),
        ("int4_per_token_head", 3.765, 3.556),
        ("nvfp4", 3.556, 3.556),
        ("turboquant_k8v4", 2.612, 2.56),
        ("turboquant_4bit_nc", 3.821, 3.657),
        ("turboquant_k3v4_nc", 4.339, 4.129),
        ("turboquant_3bit_nc", 5.020, 4.741),
    ],
)
def test_capacity_ratio_counts_the_scales(name, at_128, at_64):
    assert capacity_ratio("bfloat16", name, head_dim=128) == pytest.approx(at_128, abs=5e-4)
    assert capacity_ratio("bfloat16", name, head_dim=64) == pytest.approx(at_64, abs=5e-4)


def test_the_tiny_model_has_32_kib_per_token():
    assert bytes_per_token("bfloat16", layers=8, kv_heads=8, head_dim=128) == 32 * 1024


def test_auto_and_unknown_formats_are_not_guessed():
    assert bytes_per_token("auto", **LLAMA_8B) is None
    assert capacity_ratio("auto", "fp8", head_dim=128) is None
    assert capacity_ratio_range("bfloat16", "int2") is None


def test_range_spans_the_head_sizes():
    assert capacity_ratio_range("bfloat16", "fp8") == (2.0, 2.0)
    low, high = capacity_ratio_range("bfloat16", "int8_per_token_head")
    assert low == pytest.approx(256 / 136)
    assert high == pytest.approx(1024 / 520)


@pytest.mark.parametrize("name", sorted(KV_FORMATS))
def test_no_format_is_larger_than_bf16(name):
    assert capacity_ratio("bfloat16", name, head_dim=64) >= 1
