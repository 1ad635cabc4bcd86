import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from loadgen.engines.kv_held import BASE, held
from loadgen.engines.model_config import config_path, read_config, shape
from loadgen.engines.model_weights import weights
from loadgen.errors import UserError

# What published config.json files say, less what does not matter here.
LLAMA_8B = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 131072}  # fmt: skip
QWEN_7B = {"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
           "num_key_value_heads": 4, "sliding_window": 131072, "use_sliding_window": False,
           "max_window_layers": 28}  # fmt: skip
GEMMA3_4B = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
             "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                             "num_hidden_layers": 34, "sliding_window": 1024},
             "vision_config": {"hidden_size": 1152}}  # fmt: skip
DEEPSEEK_V3 = {"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
               "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128}  # fmt: skip


def read(config: dict) -> "tuple":
    one = shape(config, name="model", where="config.json")
    kinds = Counter((layer.kv_heads, layer.head_dim, layer.window, layer.latent) for layer in one.layers)
    return dict(kinds), one


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        (LLAMA_8B, {(8, 128, None, None): 32}),
        (QWEN_7B, {(4, 128, None, None): 28}),
        ({**QWEN_7B, "use_sliding_window": True, "max_window_layers": 20},
         {(4, 128, None, None): 20, (4, 128, 131072, None): 8}),
        # Qwen3-30B-A3B gives a head size that is not hidden / heads.
        ({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
          "num_key_value_heads": 4, "head_dim": 128}, {(4, 128, None, None): 48}),
        # Mistral-7B-v0.1 has a window in every layer, v0.3 has none.
        ({**LLAMA_8B, "model_type": "mistral", "sliding_window": 4096}, {(8, 128, 4096, None): 32}),
        ({**LLAMA_8B, "model_type": "mistral", "sliding_window": None}, {(8, 128, None, None): 32}),
        # Gemma 2: every second layer; Gemma 3: five of six, and its config leaves heads out.
        ({"model_type": "gemma2", "hidden_size": 3584, "num_hidden_layers": 42, "num_attention_heads": 16,
          "num_key_value_heads": 8, "head_dim": 256, "sliding_window": 4096},
         {(8, 256, None, None): 21, (8, 256, 4096, None): 21}),
        (GEMMA3_4B, {(4, 256, None, None): 5, (4, 256, 1024, None): 29}),
        ({"model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
          "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128,
          "layer_types": ["sliding_attention", "full_attention"] * 12},
         {(8, 64, 128, None): 12, (8, 64, None, None): 12}),
        ({"model_type": "llama4", "text_config": {"model_type": "llama4_text", "hidden_size": 5120,
          "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
          "attention_chunk_size": 8192}}, {(8, 128, 8192, None): 36, (8, 128, None, None): 12}),
        # Gemma 3n: the last 15 of 35 layers use the cache of others. Gemma 4: global layers are of another size.
        ({"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text", "hidden_size": 2048,
          "num_hidden_layers": 35, "num_kv_shared_layers": 15}}, {(2, 256, None, None): 4, (2, 256, 512, None): 16}),
        ({"model_type": "gemma4_text", "hidden_size": 2304, "num_hidden_layers": 30},
         {(4, 512, None, None): 5, (4, 256, 512, None): 25}),
        ({"model_type": "gemma4_text", "hidden_size": 2304, "num_hidden_layers": 2, "sliding_window": 64,
          "per_layer_config": {"1": {"head_dim": 128, "num_key_value_heads": 1}}},
         {(4, 256, 64, None): 1, (1, 128, None, None): 1}),
        (DEEPSEEK_V3, {(1, 0, None, (512, 64)): 61}),
        # Names of older models; Falcon-7B has one KV head.
        ({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12}, {(12, 64, None, None): 12}),
        ({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
          "multi_query": True}, {(1, 64, None, None): 32}),
    ],
)  # fmt: skip
def test_layers(config, kinds):
    assert read(config)[0] == kinds


@pytest.mark.parametrize(
    ("keys", "full", "states"),
    [
        ({"layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 2}, 2, 6),
        ({"model_type": "qwen3_next", "full_attention_interval": 4}, 2, 6),
        ({"attn_layer_period": 8, "attn_layer_offset": 4}, 1, 7),
        ({"attn_layer_indices": [1, 5], "mamba_d_state": 128}, 2, 6),
        ({"attn_type_list": [0, 0, 0, 1, 0, 0, 0, 1]}, 2, 6),
        ({"hybrid_override_pattern": "M-M*-M-M"}, 1, 4),
    ],
)
def test_layers_of_hybrids_are_counted_where_the_config_tells(keys, full, states):
    _, one = read(
        {"hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, **keys}
    )
    assert (len(one.layers), one.states) == (full, states)
    assert f"{states} layers hold a state of constant size per request: it is not counted" in one.notes


def test_a_sparse_index_is_counted_and_told():
    _, one = read({**DEEPSEEK_V3, "model_type": "deepseek_v32", "index_topk": 2048, "index_head_dim": 128})
    assert one.layers[0].beside_bytes == 132
    assert one.notes[0].startswith("a sparse index keeps 132 bytes per token and layer more")


def test_guesses_are_told():
    _, one = read({**LLAMA_8B, "model_type": "new", "sliding_window": 512, "num_key_value_heads": None})
    assert one.notes == (
        "no num_key_value_heads: as many KV heads as attention heads",
        "nothing tells which layers have the sliding_window: all are taken to",
    )
    assert read(LLAMA_8B)[1].notes == ()


def test_gemma_3_holds_less_than_its_layers_say():
    _, one = read(GEMMA3_4B)
    per_layer = 4 * 256 * 4
    assert float(held(BASE, one).sequence_bytes(32_768.0)) == per_layer * (5 * 32_768 + 29 * 1024)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"num_hidden_layers": None}, "config.json: num_hidden_layers: missing: give --layers"),
        ({"num_hidden_layers": "32"}, "config.json: num_hidden_layers: '32': should be a whole number above 0"),
        ({"num_hidden_layers": 10**9}, "config.json: num_hidden_layers: 1000000000: should be at most 10000"),
        ({"num_key_value_heads": 0}, "config.json: num_key_value_heads: 0: should be a whole number above 0"),
        ({"num_attention_heads": None}, "config.json: num_attention_heads: missing: give --head-dim"),
        (
            {"num_attention_heads": 33},
            "config.json: head_dim: missing, and 4096 / 33 heads is no whole number: give --head-dim",
        ),
        ({"layer_types": ["full_attention"] * 3}, "config.json: num_hidden_layers: 32: should be 3, as many"),
        ({"layer_types": ["warp"] * 32}, "config.json: layer_types: warp: not known; known: full_attention"),
        ({"layer_types": "full"}, "config.json: layer_types: 'full': should be a list with one kind per layer"),
        ({"hybrid_override_pattern": "M?"}, "config.json: hybrid_override_pattern: ?: not known; known: [*] M - E"),
        ({"mamba_d_state": 16}, "config.json: mamba_d_state: a model with state-space or linear layers"),
        ({"layer_types": ["mamba"] * 32}, "config.json: no layer attends"),
        ({"block_configs": [{}]}, "config.json: block_configs: attention that loadgen cannot count"),
        ({"model_type": "deepseek_v4"}, "config.json: model_type: deepseek_v4: attention that loadgen cannot count"),
        ({"is_encoder_decoder": True}, "config.json: is_encoder_decoder: true: should be a decoder"),
        ({"kv_lora_rank": 512}, "config.json: qk_rope_head_dim: missing: kv_lora_rank should have it beside"),
    ],
)
def test_what_cannot_be_counted_is_one_clear_line(keys, line):
    with pytest.raises(UserError, match=f"^{line.replace('?', '[?]')}") as error:
        read({**LLAMA_8B, **keys})
    assert "\n" not in str(error.value)


def test_files(tmp_path: Path):
    with pytest.raises(UserError, match=r"no such file: give a folder with a config.json"):
        config_path(str(tmp_path / "meta" / "llama"))
    path = tmp_path / "config.json"
    path.write_text("{")
    assert config_path(str(tmp_path)) == path
    with pytest.raises(UserError, match="should be JSON, a model's config"):
        read_config(path)
    path.write_text("[]")
    with pytest.raises(UserError, match="should be a JSON object"):
        read_config(path)
    path.write_text(json.dumps(LLAMA_8B))
    assert read_config(path) == LLAMA_8B


KEYS = ("num_hidden_layers", "num_key_value_heads", "head_dim", "v_head_dim", "hidden_size", "layer_types",
        "hybrid_override_pattern", "attn_layer_indices", "attn_layer_period", "attn_layer_offset", "attn_type_list",
        "full_attention_interval", "sliding_window", "sliding_window_pattern", "use_sliding_window",
        "max_window_layers", "num_kv_shared_layers", "kv_lora_rank", "qk_rope_head_dim", "index_topk",
        "index_head_dim", "global_head_dim", "num_global_key_value_heads", "attention_k_eq_v", "per_layer_config",
        "no_rope_layers", "no_rope_layer_interval", "attention_chunk_size", "max_position_embeddings", "text_config",
        "multi_query", "vocab_size", "intermediate_size", "num_experts", "num_experts_per_tok", "decoder_sparse_step",
        "tie_word_embeddings", "first_k_dense_replace", "model_type", "quantization_config")  # fmt: skip
ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 200), st.floats(), st.text(max_size=4),
    st.lists(st.one_of(st.integers(-1, 3), st.none(), st.sampled_from(["full_attention", "mamba"])), max_size=4),
    st.dictionaries(st.sampled_from(["0", "head_dim"]), st.one_of(st.integers(0, 9), st.text(max_size=2)), max_size=2),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    model_type=st.sampled_from(["llama", "qwen2", "gemma3_text", "gemma4_text", "llama4_text", "deepseek_v3", "x"]),
    keys=st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=6),
)
def test_whatever_a_config_holds_it_is_counted_or_refused_in_clear_lines(model_type, keys):
    config = {**LLAMA_8B, "vocab_size": 1_000, "intermediate_size": 64, "model_type": model_type, **keys}
    try:
        one = shape(config, name="model", where="config.json")
    except UserError as error:
        wrong = [line for line in str(error).splitlines() if not line.startswith("config.json: ")]
    else:
        weighed = weights(config, None, given_bytes=1e15, where="config.json")
        wrong = [] if float(held(BASE, one).sequence_bytes(1_000.0)) > 0 and weighed.step_bytes(1) > 0 else [one]
    assert not wrong
