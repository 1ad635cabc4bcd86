#!/usr/bin/env python3
"""Builds the folder of a tiny Llama that vLLM can load with random weights (`load-format: dummy`).

    .venv-vllm/bin/python deploy/vllm/tiny_model.py .cache/tiny-llama

The shape makes the KV cache, not the weights, the cost: 8 layers x 8 KV heads x head size 128 hold 32 KiB of KV per
token in bf16, beside about 12 million parameters. Nothing is downloaded: the tokenizer is trained, in less than a
second, on the language reference that Python ships as `pydoc_data.topics`. Needs the `tokenizers` package, which vLLM
brings.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

VOCABULARY = 2048
SPECIAL = ("<s>", "</s>")  # ids 0 and 1
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
}
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": SPECIAL[0],
    "eos_token": SPECIAL[1],
    "model_max_length": CONFIG["max_position_embeddings"],
    "clean_up_tokenization_spaces": False,
    "chat_template": CHAT_TEMPLATE,
}


def reference_text() -> Iterator[str]:
    """Python's own language reference, topic by topic, in a fixed order."""
    for _, text in sorted(topics.items()):
        yield text.encode("ascii", "ignore").decode()


def train_tokenizer(path: Path) -> None:
    """Writes a byte-level BPE tokenizer of exactly `VOCABULARY` entries to `path`.

    Its alphabet is ASCII alone: a random model that falls into repeating half a UTF-8 character would otherwise send
    events without any text, which no client can time.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=[letter for letter in pre_tokenizers.ByteLevel.alphabet() if letter.isascii()],
        show_progress=False,
    )
    tokenizer.train_from_iterator(reference_text(), trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        sys.exit(f"tiny_model: the tokenizer has {tokenizer.get_vocab_size()} entries, wanted {VOCABULARY}")
    tokenizer.save(str(path))


def build(folder: Path) -> None:
    """Writes config.json, tokenizer.json, tokenizer_config.json and generation_config.json into `folder`.

    config.json comes last, so that a folder that has one is complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    train_tokenizer(folder / "tokenizer.json")
    generation = {"bos_token_id": 0, "eos_token_id": 1}
    for name, content in (
        ("tokenizer_config.json", TOKENIZER_CONFIG),
        ("generation_config.json", generation),
        ("config.json", CONFIG),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Builds the folder; an older one is written over."""
    parser = argparse.ArgumentParser(description="build a tiny random-weight Llama folder for vLLM")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    build(folder)
    print(f"{folder}: tiny model built")


if __name__ == "__main__":
    main()
