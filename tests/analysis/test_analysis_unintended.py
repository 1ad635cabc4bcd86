import msgspec
import pytest
from fakes import synthetic
from fakes.synthetic import Arm, lengths, saturated

from loadgen.analysis.judge import judge
from loadgen.analysis.unintended import flags
from loadgen.records import HostFacts

STAGES = (saturated(lengths(24, (32, 64), (8, 16)), concurrency=4),)


@pytest.fixture(scope="module")
def run():
    return synthetic.experiment((synthetic.BF16, synthetic.FP8), STAGES, repeats=2)


def with_facts(run, arm, only=None, **changes):
    for number, block in enumerate(run.blocks):
        if block.manifest.arm == arm and only in (None, number):
            run = synthetic.edited(run, number, facts=msgspec.structs.replace(block.facts, **changes))
    return run


def test_what_only_the_arm_may_change_is_no_complaint(run):
    assert judge(run).unintended == ()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"version": "0.33.0"}, "version: bf16 0.32.0, fp8 0.33.0"),
        ({"model": "other"}, "model: bf16 tiny, fp8 other"),
        ({"max_model_len": 4096}, "max model len: bf16 2048, fp8 4096"),
        ({"prefix_caching": True}, "prefix caching: bf16 False, fp8 True"),
        ({"host": HostFacts(cpu="Xeon")}, "CPU: bf16 EPYC, fp8 Xeon"),
        (
            {"argv": ("vllm", "serve", "tiny", "--kv-cache-dtype=fp8", "--port", "9", "--enforce-eager")},
            "--enforce-eager: bf16 not given, fp8 given",
        ),
    ],
)
def test_each_difference_that_nobody_asked_for_is_named(run, changes, line):
    assert judge(with_facts(run, "fp8", **changes)).unintended == (line,)


def test_unknown_is_no_difference(run):
    assert judge(with_facts(run, "fp8", version=None, argv=(), host=None)).unintended == ()


def test_a_server_that_changed_between_blocks(run):
    found = judge(with_facts(run, "fp8", only=2, version="0.33.0", capacity_tokens=9000)).unintended
    assert found == (
        "fp8: its server changed between blocks: version 0.32.0, later 0.33.0 and capacity 8192, later 9000",
    )
    assert judge(with_facts(run, "fp8", only=2, capacity_tokens=8180)).unintended == ()


def test_another_plan_is_named(run):
    manifest = msgspec.structs.replace(run.blocks[1].manifest, plan_digest="d2")
    found = judge(synthetic.edited(run, 1, manifest=manifest)).unintended
    assert found == ("the plan: blocks did not all do the same plan (bf16 d1; fp8 d1 and d2)",)


def test_a_baseline_that_is_not_confirmed_is_a_warning(run):
    assert any("not confirmed" in line for line in judge(with_facts(run, "bf16", kv_dtype="auto")).warnings)
    itself = judge(with_facts(run, "bf16", kv_dtype="fp8", kv_dtype_asked="auto")).warnings
    assert "bf16: the base's cache is itself quantized (fp8)" in itself


def test_a_dtype_that_is_not_in_effect_is_a_warning(run):
    found = judge(with_facts(run, "fp8", kv_dtype="bfloat16")).warnings
    assert "fp8: a fp8 cache was asked for, the server holds bfloat16" in found
    assert not any("asked for" in line for line in judge(with_facts(run, "fp8", kv_dtype="fp8_e4m3")).warnings)


def test_two_settings_at_once_are_a_warning():
    arms = (
        Arm(name="bf16", flags={"kv-cache-dtype": "bfloat16"}),
        Arm(name="fp8", kv_dtype="fp8", flags={"kv_cache_dtype": "fp8", "--max-num-seqs": "8"}),
    )
    warnings = judge(synthetic.experiment(arms, STAGES, repeats=2)).warnings
    assert any("differ in 2 settings (kv-cache-dtype and max-num-seqs)" in line for line in warnings)


def test_other_block_sizes_are_a_soft_warning(run):
    report = judge(with_facts(run, "fp8", block_tokens=32))
    assert report.unintended == ()
    assert "cache blocks hold 16 tokens in bf16 and 32 in fp8" in report.warnings


def test_flags_of_a_command_line():
    argv = ["python", "-m", "server", "--a=1", "--b_c", "2", "3", "--d", "--e", "x=y"]
    assert flags(argv) == {"a": "1", "b-c": "2 3", "d": "", "e": "x=y"}
