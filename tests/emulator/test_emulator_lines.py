"""Whatever a profile plants, loadgen's own reading of the log and of the endpoints must find exactly that."""

from datetime import datetime
from itertools import product

import httpx
import pytest
from emulator_front_cases import profile, serving

from loadgen.emulator import lines
from loadgen.emulator.arm import emulated
from loadgen.engines.emulator import ENGINE
from loadgen.engines.vllm import ENGINE as VLLM
from loadgen.server.facts import Answers, assembled, read_facts
from loadgen.server.log import lines as log_lines
from loadgen.server.log_facts import read_log

VERSIONS = (
    *("0.8.0", "0.8.5", "0.9.2", "0.10.2", "0.11.0", "0.11.2", "0.12.0", "0.14.0", "0.16.0", "0.19.1", "0.20.0"),
    *("0.24.0", "0.26.0", "0.28.0", "0.30.0", "0.32.0", "0.33.0"),
)
GPU_BACKENDS = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT", "TRITON_MLA")
DTYPES = ("bfloat16", "fp8", "fp8_e5m2", "int8_per_token_head", "nvfp4", "turboquant_k8v4")


def planted(version, device, backend, dtype, **flags):
    formats = {dtype: {"backend": backend}}
    scheduler = {"max_num_seqs": 8, "block_tokens": flags.pop("block", 16)}
    told = profile(version=version, device=device, formats=formats, scheduler=scheduler)
    return emulated(told, {"kv-cache-dtype": dtype, **flags})


def log_of(arm):
    at = datetime(2026, 11, 30, 14, 45, 5)
    version = arm.profile.version
    told = lines.start_lines(arm, host="127.0.0.1", port=8100)
    return "\n".join(lines.written(line, at=at, pid=7, version=version) for line in told) + "\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_gpus_log_tells_backend_type_and_capacity(version):
    for backend, dtype in product(GPU_BACKENDS, DTYPES):
        arm = planted(version, "cuda", backend, dtype)
        for engine in (ENGINE, VLLM):
            seen = read_log(log_of(arm), engine)
            assert [found.name for found in seen.backends] == [backend]
            assert seen.capacity_tokens == arm.capacity_tokens
            assert (seen.capacity_is_assumed, seen.device, seen.version) == (False, "cuda", version)
            assert seen.settings["kv_cache_dtype"] == seen.config["kv_cache_dtype"] == dtype


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", ["bfloat16", "fp8"])
def test_a_cpus_log_tells_them_too_by_silence_where_vllm_is_silent(version, dtype):
    arm = planted(version, "cpu", "CPU_ATTN", dtype)
    facts = assembled(Answers(), read_log(log_of(arm), ENGINE), engine=ENGINE, has_log=True)
    old = version in ("0.8.0", "0.8.5", "0.9.2", "0.10.2", "0.11.0")
    expected = ("TORCH_SDPA", "log") if old else ("CPU_ATTN", "assumed")
    assert [(backend.name, backend.how) for backend in facts.backends] == [expected]
    assert (facts.device, facts.kv_dtype, facts.capacity_tokens) == ("cpu", dtype, arm.capacity_tokens)
    assert facts.prefix_caching is False
    assert facts.max_model_len == 512


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unusual_backend_of_a_cpu_is_named(version):
    seen = read_log(log_of(planted(version, "cpu", "CPU_MLA", "bfloat16")), ENGINE)
    assert [found.name for found in seen.backends] == ["CPU_MLA"]


@pytest.mark.parametrize("version", ["0.11.2", "0.20.0", "0.32.0"])
def test_a_backend_that_was_asked_for(version):
    formats = {"fp8": {"backend": "FLASH_ATTN", "other_backends": {"FLASHINFER": {}}}}
    asked = {"kv-cache-dtype": "fp8", "attention-backend": "FLASHINFER"}
    arm = emulated(profile(version=version, formats=formats), asked)
    [seen] = read_log(log_of(arm), ENGINE).backends
    assert seen.name == "FLASHINFER"
    assert seen.line.startswith("Using AttentionBackendEnum.FLASHINFER backend.")


@pytest.mark.parametrize("version", ["0.8.0", "0.8.5", "0.10.2"])
def test_the_way_back_to_the_old_engine(version):
    arm = planted(version, "cuda", "XFORMERS", "fp8")
    seen = read_log(log_of(arm), ENGINE)
    assert [found.name for found in seen.backends] == ["XFORMERS"]
    assert any("Falling back to V0" in line for line in seen.telling)
    assert any("backend for FP8 KV cache" in line for line in seen.telling)
    assert seen.capacity_tokens == arm.capacity_tokens


def test_no_other_start_has_lines_that_belong_in_a_report():
    for version, backend, dtype in product(VERSIONS, ("FLASH_ATTN", "TRITON_ATTN"), DTYPES):
        assert read_log(log_of(planted(version, "cuda", backend, dtype)), ENGINE).telling == ()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_endpoints_and_log_together_are_the_planted_truth(version, device):
    arm = planted(version, device, "TRITON_ATTN", "fp8", block=32, **{"max-num-seqs": "5", "max-model-len": "128"})

    async def main(served):
        transport = httpx.ASGITransport(app=served.front.app())
        return await read_facts(url="http://emulator", log_text=log_of(arm), engine=VLLM, transport=transport)

    facts = serving(main, arm)
    assert (facts.engine, facts.version) == ("emulator", version), "whatever it was taken for"
    assert (facts.kv_dtype, facts.kv_dtype_how, facts.kv_dtype_asked) == ("fp8", "endpoint", "fp8")
    assert facts.capacity_tokens == arm.capacity_tokens
    assert (facts.block_tokens, facts.max_model_len, facts.max_num_seqs) == (32, 128, 5)
    assert [backend.name for backend in facts.backends] == ["TRITON_ATTN"]
    assert facts.device == device
    assert facts.model == "toy"


def test_a_type_that_was_not_asked_for_is_auto_as_vllm_says():
    arm = emulated(profile(), {})
    facts = assembled(Answers(), read_log(log_of(arm), ENGINE), engine=ENGINE, has_log=True, argv=("x",))
    assert (facts.kv_dtype, facts.kv_dtype_asked) == ("auto", "auto")
    assert any("ask for bfloat16" in warning for warning in facts.warnings)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_line_has_vllms_header(version):
    read = list(log_lines(log_of(planted(version, "cuda", "FLASHINFER", "fp8"))))
    assert all(line.level in ("INFO", "WARNING") for line in read if line.text)


def test_what_the_serving_process_adds_changes_no_fact():

    arm = planted("0.32.0", "cuda", "FLASH_ATTN", "fp8")
    banner = lines.written(lines.banner(arm), at=datetime(2026, 1, 1), pid=1, version="0.32.0")
    assert "SIMULATED" in banner
    assert read_log(f"{banner}\n{log_of(arm)}", ENGINE) == read_log(log_of(arm), ENGINE)
