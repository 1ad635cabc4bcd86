import json
from pathlib import Path

import pytest

from loadgen.engines.model_weights import Weights, experts_unknown, parameters, weights
from loadgen.errors import UserError

LLAMA_8B = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
            "tie_word_embeddings": False}  # fmt: skip
MIXTRAL = {**LLAMA_8B, "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN3_MOE = {"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
             "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
             "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1,
             "mlp_only_layers": [], "tie_word_embeddings": False}  # fmt: skip
DEEPSEEK_V3 = {"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
               "moe_intermediate_size": 2048, "num_hidden_layers": 61, "first_k_dense_replace": 3,
               "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_layer_freq": 1,
               "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536,
               "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 129280,
               "tie_word_embeddings": False}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (LLAMA_8B, 8_030_261_248),
        (MIXTRAL, 46_702_792_704),
        (QWEN3_MOE, 30_532_122_624),
        (DEEPSEEK_V3, 671_026_419_200),
        ({**LLAMA_8B, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64,
          "tie_word_embeddings": True}, 1_235_814_400),  # Llama-3.2-1B
    ],
)  # fmt: skip
def test_parameters_are_those_of_the_published_models(config, published):
    assert parameters(config).total == pytest.approx(published, rel=1e-5)


def test_kinds_that_cannot_be_counted_are_not_guessed():
    assert parameters({**LLAMA_8B, "model_type": "gpt2"}) is None
    assert parameters({"model_type": "llama"}) is None
    assert weights({"model_type": "gpt2"}, None, given_bytes=None, where="c") is None
    assert weights({**LLAMA_8B, "quantization_config": {}}, None, given_bytes=None, where="c") is not None
    quantized = {**LLAMA_8B, "quantization_config": {"quant_method": "fp8"}}
    assert weights(quantized, None, given_bytes=None, where="c") is None


def test_a_step_reads_no_embedding_but_its_rows():
    one = weights(LLAMA_8B, None, given_bytes=None, where="c")
    assert one.total_bytes == 2 * 8_030_261_248
    assert one.step_bytes(1) == one.step_bytes(256) == 2 * (8_030_261_248 - 128256 * 4096)
    tied = weights({**LLAMA_8B, "tie_word_embeddings": True}, None, given_bytes=None, where="c")
    assert tied.step_bytes(1) == tied.total_bytes
    assert one.on(2).step_bytes(1) == one.step_bytes(1) / 2


def test_a_step_reads_the_experts_that_its_tokens_meet():
    one = weights(MIXTRAL, None, given_bytes=None, where="c")
    beside = one.total_bytes - one.rows_bytes - one.expert_bytes
    assert one.step_bytes(1) == pytest.approx(beside + one.expert_bytes * 2 / 8)
    assert one.step_bytes(2) == pytest.approx(beside + one.expert_bytes * (1 - (6 / 8) ** 2))
    assert one.step_bytes(10_000) == pytest.approx(one.total_bytes - one.rows_bytes)
    # 12.9 billion are said to be active for a token; the input embedding is among them.
    assert one.step_bytes(1) / 2 + 32000 * 4096 == pytest.approx(12.9e9, rel=0.01)


def test_files_are_weighed(tmp_path: Path):
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"x" * 1_200_000)
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(b"x" * 800_000)
    (tmp_path / "consolidated.safetensors").write_bytes(b"x" * 2_000_000)
    one = weights({}, tmp_path, given_bytes=None, where="c")
    assert (one.total_bytes, one.source) == (2_000_000, "2 files model*.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {}}))
    assert weights({}, tmp_path, given_bytes=None, where="c").total_bytes == 2_000_000
    index.write_text(json.dumps({"metadata": {"total_size": 1_999_000}}))
    assert weights({}, tmp_path, given_bytes=None, where="c") == Weights(total_bytes=1_999_000, source=index.name)
    assert weights({}, tmp_path, given_bytes=5.0, where="c") == Weights(total_bytes=5.0, source="as given")


def test_weights_that_are_less_than_their_embedding_are_refused():
    with pytest.raises(
        UserError, match=r"^c: vocab_size: an embedding of 1,050,673,152 bytes is more than half of the"
    ):
        weights(LLAMA_8B, None, given_bytes=1e9, where="c")


def test_experts_that_are_not_told_apart_are_told():
    config = {"model_type": "new_moe", "num_experts": 64}
    assert experts_unknown(config, weights(config, None, given_bytes=1e9, where="c"))
    assert not experts_unknown(MIXTRAL, weights(MIXTRAL, None, given_bytes=None, where="c"))
    assert not experts_unknown(LLAMA_8B, weights(LLAMA_8B, None, given_bytes=None, where="c"))
