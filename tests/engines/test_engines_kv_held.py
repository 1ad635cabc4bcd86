import numpy as np
import pytest
from hypothesis import given, strategies as st

from loadgen.engines.kv_formats import residual_ratio
from loadgen.engines.kv_held import BASE, all_formats, held, named, unfit
from loadgen.engines.model_shape import Layer, ModelShape
from loadgen.errors import UserError

LLAMA_8B = ModelShape(name="llama", layers=(Layer(kv_heads=8, head_dim=128, value_dim=128),) * 32)
# Two layers with a window for each without one.
MIXED = ModelShape(
    name="mixed",
    layers=(
        Layer(kv_heads=4, head_dim=64, value_dim=64, window=100),
        Layer(kv_heads=4, head_dim=64, value_dim=64, window=100),
        Layer(kv_heads=4, head_dim=64, value_dim=64),
    ),
)
DEEPSEEK = ModelShape(name="deepseek", layers=(Layer(latent=(512, 64)),) * 61)
FITTING = [name for name in all_formats() if unfit(name, LLAMA_8B) is None]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("bfloat16", 131_072), ("fp8", 65_536), ("int8_per_token_head", 67_584), ("int4_per_token_head", 34_816),
     ("nvfp4", 36_864), ("kivi:int2_g32", 24_576)],
)  # fmt: skip
def test_bytes_per_token_of_llama_3_1_8b(name, expected):
    assert held(name, LLAMA_8B).bytes_per_token == expected


def test_turboquant_leaves_two_layers_at_each_end():
    one = held("turboquant_4bit_nc", LLAMA_8B)
    assert one.bytes_per_token == 8 * (28 * 134 + 4 * 512)
    hybrid = ModelShape(name="hybrid", layers=LLAMA_8B.layers, states=8)
    assert held("turboquant_4bit_nc", hybrid).bytes_per_token == 8 * 32 * 134
    three = ModelShape(name="three", layers=LLAMA_8B.layers[:3])
    assert held("turboquant_4bit_nc", three).bytes_per_token == 8 * (134 + 2 * 512)


def test_a_window_holds_no_more_than_itself():
    one = held(BASE, MIXED)
    per_layer = 4 * 256
    assert one.sequence_bytes(60.0) == 3 * 60 * per_layer
    assert one.sequence_bytes(1_000.0) == (2 * 100 + 1_000) * per_layer
    assert list(one.sequence_bytes(np.array([60.0, 1_000.0]))) == [180 * per_layer, 1_200 * per_layer]


def test_what_sequences_share_is_held_once():
    one = held(BASE, MIXED)
    per_layer = 4 * 256
    assert one.together_bytes((150, 150, 40), 340) == (2 * 240 + 340) * per_layer
    assert one.together_bytes((150, 150, 40), 200) == (2 * 200 + 200) * per_layer
    assert held(BASE, LLAMA_8B).together_bytes((150, 150), 200) == 200 * 131_072


def test_a_residual_is_kept_by_each_sequence():
    one = held("transformers:int4", LLAMA_8B)
    base = held(BASE, LLAMA_8B)
    alone = float(base.sequence_bytes(512.0) / one.sequence_bytes(512.0))
    assert alone == pytest.approx(residual_ratio(512, 4.5, keys_kept=63.5, values_kept=63.5))
    assert one.together_bytes((512, 512), 1024) == pytest.approx(2 * float(one.sequence_bytes(512.0)))
    kivi = held("kivi:int2_g32", LLAMA_8B)
    assert float(base.sequence_bytes(4096.0) / kivi.sequence_bytes(4096.0)) == pytest.approx(
        residual_ratio(4096, 3, keys_kept=63.5, values_kept=128)
    )


def test_a_cache_that_is_turned_back_is_read_and_read_again():
    one, base = held("transformers:int4", LLAMA_8B), held(BASE, LLAMA_8B)
    assert one.step_bytes(4096.0) == one.sequence_bytes(4096.0) + base.sequence_bytes(4096.0)
    fp8 = held("fp8", LLAMA_8B)
    assert fp8.step_bytes(4096.0) == fp8.sequence_bytes(4096.0)


@pytest.mark.parametrize(
    ("name", "per_layer"), [("bfloat16", 1152), ("fp8", 576), ("fp8_ds_mla", 656), ("nvfp4_ds_mla", 352)]
)
def test_a_latent_is_one_vector_per_token(name, per_layer):
    assert held(name, DEEPSEEK).bytes_per_token == 61 * per_layer


def test_a_sparse_index_is_beside_every_format():
    shape = ModelShape(name="v3.2", layers=(Layer(latent=(512, 64), beside_bytes=132.0),))
    assert held("fp8_ds_mla", shape).bytes_per_token == 656 + 132
    assert held(BASE, shape).bytes_per_token == 1152 + 132


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("int8_per_token_head", DEEPSEEK, "holds no latent (kv_lora_rank)"),
        ("fp8_ds_mla", LLAMA_8B, "made for a latent of 512 + 64 values"),
        ("fp8_ds_mla", ModelShape(name="x", layers=(Layer(latent=(256, 64)),)), "made for a latent of 512 + 64 values"),
        ("transformers:int4", MIXED, "takes no sliding-window layers"),
        (
            "llama.cpp:q8_0",
            ModelShape(name="x", layers=(Layer(kv_heads=2, head_dim=80, value_dim=80),)),
            "needs a head size that is a multiple of 32, not 80",
        ),
        ("fp8", MIXED, None),
    ],
)
def test_what_does_not_fit_a_model_says_why(name, shape, why):
    assert unfit(name, shape) == why


def test_names():
    assert [named(name) for name in ("bf16", "fp16", "q8_0", "nvfp4", "lmdeploy:int4")] == [
        "bfloat16", "float16", "llama.cpp:q8_0", "nvfp4", "lmdeploy:int4",
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"among lmdeploy:int4, transformers:int4$"):
        named("int4")
    with pytest.raises(UserError, match="--format auto: is what the checkpoint says"):
        named("auto")
    with pytest.raises(UserError, match="--format q9: should be all or among bfloat16"):
        named("q9")


@given(name=st.sampled_from(FITTING), tokens=st.integers(1, 200_000), more=st.integers(1, 5_000))
def test_more_tokens_take_more_and_never_more_than_in_16_bits(name, tokens, more):
    one = held(name, LLAMA_8B)
    less, all_of_it = float(one.sequence_bytes(float(tokens))), float(one.sequence_bytes(float(tokens + more)))
    assert less < all_of_it
    assert less <= one.full_bytes * tokens * (1 + 1e-12)
    assert all_of_it >= one.bytes_per_token * (tokens + more) * (1 - 1e-12)


def test_heads_are_dealt_out_over_gpus():
    assert held(BASE, LLAMA_8B.on(4)).bytes_per_token == 131_072 / 4
    assert held(BASE, LLAMA_8B.on(16)).bytes_per_token == 131_072 / 8, "copied, where there are too few"
    assert held(BASE, DEEPSEEK.on(8)).bytes_per_token == 61 * 1152, "a latent is whole on each"
    with pytest.raises(UserError, match="--tensor-parallel 3: should divide 8 KV heads"):
        LLAMA_8B.on(3)


def test_groups_of_layers_are_filled_up():
    def counts(full: int, sliding: int) -> int:
        layers = (Layer(window=8),) * sliding + (Layer(),) * full
        return ModelShape(name="x", layers=layers).padding_layers()

    assert counts(10, 52) == 8
    assert counts(13, 12) == 1
    assert counts(12, 12) == 0
    assert counts(32, 0) == 0
