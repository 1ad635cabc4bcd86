import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli.estimate_page import EXAMPLE, PAGE, ROOT, shown
from click.testing import CliRunner

from loadgen.cli.estimate import command
from loadgen.errors import UserError

EXAMPLES = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
BY_HAND = ("--layers", "32", "--kv-heads", "8", "--head-dim", "128")
LLAMA_8B = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
            "max_position_embeddings": 131072}  # fmt: skip
SCENARIO = """
name: small
workload: {input_tokens: 100, output_tokens: 20}
stages:
  - {name: one, concurrency: 1, requests: 4}
  - {name: full, concurrency: 32, requests: 64}
"""


def run(*words: str) -> str:
    result = CliRunner().invoke(command, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def told(*words: str) -> dict:
    return json.loads(run(*words, "--json"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "llama-8b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_8B))
    return folder


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO)
    return str(path)


@pytest.mark.parametrize(("words", "output"), EXAMPLES, ids=[words[:40] for words, _ in EXAMPLES])
def test_the_pages_examples_print_what_the_page_says(words: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert shown(words) == output, "python tests/cli/estimate_page.py writes it anew"


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == 4


def test_a_folder_with_a_config(model: Path) -> None:
    shown = run("--model", str(model), "--memory", "80GB")
    assert "llama-8b: 32 layers of 8 KV heads x 128" in shown
    assert "weights: 15 GiB (8.03 billion parameters, 2 bytes each)" in shown
    everything = told("--model", str(model), "--memory", "80GB", "--format", "all", "--context", "512")
    by_name = {one["format"]: one for one in everything["formats"]}
    assert by_name["bfloat16"]["bytes_per_token"] == 131_072
    assert by_name["kivi:int2_g32"]["bytes_per_token"] == 24_576
    assert by_name["transformers:int4"]["at"][0]["real_ratio"] == pytest.approx(2.70, abs=5e-3)
    assert by_name["fp8"]["at"][0]["capacity_tokens"] > 1.99 * by_name["bfloat16"]["at"][0]["capacity_tokens"]
    assert everything["left_out"] == dict.fromkeys(
        ("fp8_ds_mla", "nvfp4_ds_mla"), "made for a latent of 512 + 64 values"
    )
    assert everything["memory"]["cache_bytes"] == 80e9 * 0.92 - everything["weights"]["total_bytes"]
    step = everything["contexts"][0]["one_stream"]["bfloat16"]
    assert step["cache_bytes"] == 512 * 131_072
    assert everything["nothing_to_free"] is None


def test_a_scenario_and_what_it_asks_for(model: Path, scenario: str) -> None:
    words = (scenario, "--model", str(model), "--weights", "16.06GB", "--format", "fp8", "--block", "1")
    one = told(*words, "--memory", "20GB")
    full = one["stages"][1]
    assert (full["stage"], full["in_flight"], full["peak_tokens"]) == ("full", 32, 32 * 120)
    base, fp8 = full["formats"]
    assert (base["format"], base["peak_bytes"], base["held"]) == ("bfloat16", 3840 * 131_072, 32)
    assert (fp8["format"], fp8["peak_bytes"], fp8["real_ratio"]) == ("fp8", 3840 * 65_536, 2.0)
    assert [step["streams"] for step in base["steps"]] == [1, 32]
    assert one["nothing_to_free"] is True
    tight = told(*words, "--memory", "17.8GB")
    assert tight["memory_binds"] is True
    assert tight["stages"][1]["formats"][0]["held"] < tight["stages"][1]["formats"][1]["held"] == 32
    shown = run(*words, "--memory", "20GB")
    assert "There is nothing to free here" in shown
    assert "full: weights dominate each step" in shown
    assert max(len(line) for line in shown.splitlines() if line.startswith(("format", "bfloat16", "fp8"))) <= 80


def test_a_profile_brings_model_and_memory() -> None:
    one = told("--profile", "h100-llama3.1-8b", "--format", "fp8")
    assert one["model"]["name"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert one["memory"]["cache_bytes"] == pytest.approx(85.5e9 * 0.92 - 16.06e9 - 2.5e9)
    tiny = told("--profile", "cpu-tiny-llama", "--context", "256")
    assert (tiny["memory"]["cache_bytes"], tiny["weights"]) == (134_217_728, None)
    assert tiny["formats"][0]["at"][0]["capacity_tokens"] == 4096


def test_sizes() -> None:
    def memory(size: str) -> float:
        return told(*BY_HAND, "--weights", "1GB", "--memory", size)["memory"]["memory_bytes"]

    assert memory("80GB") == memory("80e9") == memory("80 gb") == 80e9
    assert memory("81559MiB") == 81_559 * 2**20
    assert memory("79.5GiB") == 79.5 * 2**30
    for size in ("80 gigs", "GB", "-1GB", "0", "nan"):
        result = CliRunner().invoke(command, [*BY_HAND, "--memory", size])
        assert result.exit_code == 2
        assert "should be a size such as 80GB (10^9 bytes) or 79.65GiB (2^30)" in " ".join(result.output.split())


def test_a_given_field_is_in_place_of_the_configs(model: Path) -> None:
    one = told("--model", str(model), "--kv-heads", "32", "--window", "1000", "--format", "fp8", "--context", "4000")
    assert one["formats"][0]["bytes_per_token"] == 4 * 131_072
    assert one["formats"][0]["at"][0]["bytes"] == 1000 * 4 * 131_072


def test_what_a_user_gets_wrong_is_one_clear_line(model: Path, tmp_path: Path) -> None:
    at = ("--model", str(model))
    mla = tmp_path / "mla.json"
    mla.write_text(json.dumps({**LLAMA_8B, "kv_lora_rank": 512, "qk_rope_head_dim": 64}))
    for words, line in (
        ((), "give --model, --profile, or --layers, --kv-heads, --head-dim"),
        (("--layers", "3"), "--kv-heads, --head-dim: missing: without --model, --layers, --kv-heads, --head-dim are"),
        (("--profile", "h100-llama3.1-8b", *at), "--profile h100-llama3.1-8b: has a model of its own"),
        (("--model", "meta-llama/Llama-3.1-8B"), "--model meta-llama/Llama-3.1-8B: no such file: give a folder"),
        ((*at, "--format", "fp7"), "--format fp7: should be all or among bfloat16"),
        ((*at, "--format", "fp8_ds_mla"), "--format fp8_ds_mla: made for a latent of 512 + 64 values"),
        ((*at, "--context", "200000"), "--context 200000: should be at most 131072, the model's longest"),
        ((*at, "--memory", "12GB"), "--memory: 12,000,000,000 bytes at utilization 0.92 leave no room"),
        ((*at, "--tensor-parallel", "3"), "--tensor-parallel 3: should divide 8 KV heads"),
        ((*BY_HAND, "--memory", "80GB"), "--layers, --kv-heads, --head-dim: no files of weights beside it"),
        (("--model", str(mla), "--kv-heads", "8"), f"{mla}: kv_lora_rank: one latent for all heads"),
        ((*at, "--layers", "0"), None),
    ):
        if line is None:
            assert CliRunner().invoke(command, list(words)).exit_code == 2
            continue
        with pytest.raises(UserError) as error:
            run(*words)
        assert str(error.value).startswith(line), words
        assert "\n" not in str(error.value)


def test_windows_experts_and_padding_are_told(tmp_path: Path) -> None:
    path = tmp_path / "gemma.json"
    path.write_text(json.dumps({"model_type": "gemma3", "text_config": {
        "model_type": "gemma3_text", "hidden_size": 5376, "num_hidden_layers": 62, "num_attention_heads": 32,
        "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024}}))  # fmt: skip
    shown = run("--model", str(path), "--format", "fp8")
    assert "gemma: 10 layers of 16 KV heads x 128; 52 layers of 16 KV heads x 128, window 1,024" in shown
    assert "note: vLLM lays layers of one kind out in groups and adds 8 empty ones to the 62" in shown


def test_help_reads_no_library_of_numbers() -> None:
    code = (
        "import sys; from loadgen.cli.main import main\n"
        "try: main(['estimate', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'msgspec', 'pydantic', 'rich', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.endswith("[]\n")
