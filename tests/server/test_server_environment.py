import os
import sys
from pathlib import Path

import pytest

from loadgen.engines import emulator, vllm
from loadgen.errors import ServerError, UserError
from loadgen.records import HostFacts
from loadgen.server import host
from loadgen.server.environment import engine_environment, engine_python, is_cpu_build, is_own, own_environment


def test_the_variable_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert engine_python(vllm.ENGINE, {"LOADGEN_VLLM_PYTHON": sys.executable}) == Path(sys.executable)
    with pytest.raises(UserError, match="LOADGEN_VLLM_PYTHON=/no/python: no such program"):
        engine_python(vllm.ENGINE, {"LOADGEN_VLLM_PYTHON": "/no/python"})


def test_then_the_folder_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    python = tmp_path / ".venv-vllm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    assert engine_python(vllm.ENGINE, {}) == python


def test_an_engine_of_loadgens_own_runs_beside_it_and_is_the_same_checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_own(emulator.ENGINE)
    assert not is_own(vllm.ENGINE)
    assert engine_python(emulator.ENGINE, {}) == Path(sys.executable)
    found = own_environment({"PYTHONPATH": "mine", "X": "y"})
    checkout, _, rest = found["PYTHONPATH"].partition(os.pathsep)
    assert (Path(checkout) / "loadgen" / "emulator" / "__main__.py").is_file()
    assert (rest, found["X"]) == ("mine", "y")
    assert not [name for name in own_environment({}) if "VLLM" in name]


def test_nowhere_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("loadgen.server.environment.loadgen.__file__", str(tmp_path / "site" / "loadgen" / "x.py"))
    with pytest.raises(ServerError, match=r"vLLM is not installed: .*install\.sh \.venv-vllm") as failure:
        engine_python(vllm.ENGINE, {})
    assert "\n" not in str(failure.value)


def test_a_python_without_vllm_is_no_cpu_build():
    assert is_cpu_build(Path(sys.executable)) is False
    assert is_cpu_build(Path("/no/python")) is False


def test_the_client_keeps_a_core_on_cpu():
    assert engine_environment({}, cpu=True, cores=[0, 1], environ={})["VLLM_CPU_OMP_THREADS_BIND"] == "0"
    assert engine_environment({}, cpu=True, cores=[2, 4, 5], environ={})["VLLM_CPU_OMP_THREADS_BIND"] == "2,4"
    assert "VLLM_CPU_OMP_THREADS_BIND" not in engine_environment({}, cpu=True, cores=[0], environ={})
    assert "VLLM_CPU_OMP_THREADS_BIND" not in engine_environment({}, cpu=False, cores=[0, 1], environ={})


def test_what_the_user_set_is_kept():
    mine = {"VLLM_CPU_OMP_THREADS_BIND": "all", "DO_NOT_TRACK": "0", "VLLM_CPU_KVCACHE_SPACE": "4", "X": "y"}
    found = engine_environment({}, cpu=True, cores=[0, 1], environ=mine)
    assert mine.items() <= found.items()


def test_a_setting_that_would_beat_the_flag_goes():
    found = engine_environment(
        {"kv-cache-memory-bytes": "1"}, cpu=True, cores=[0], environ={"VLLM_CPU_KVCACHE_SPACE": "4"}
    )
    assert "VLLM_CPU_KVCACHE_SPACE" not in found


@pytest.mark.parametrize(
    ("model", "offline"), [(".cache/tiny", True), ("/models/x", True), ("org/name", False), ("", False)]
)
def test_a_local_model_needs_no_hub(model, offline):
    found = engine_environment({"model": model}, cpu=False, cores=[0], environ={})
    assert ("HF_HUB_OFFLINE" in found) is offline


def fake_nvidia_smi(folder, monkeypatch, body):
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")


def test_the_host_without_a_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    seen = host.host_facts()
    assert isinstance(seen, HostFacts)
    assert seen.cores == len(os.sched_getaffinity(0))
    assert seen.memory_bytes > 2**20
    assert (seen.gpus, seen.gpu_memory_bytes, seen.driver, seen.cuda) == ((), None, None, None)


def test_the_host_with_gpus(monkeypatch, tmp_path):
    fake_nvidia_smi(
        tmp_path,
        monkeypatch,
        'if [ $# -gt 0 ]; then echo "NVIDIA H100 80GB HBM3, 81559, 550.54.15"; '
        'echo "NVIDIA H100 80GB HBM3, 81559, 550.54.15"; else echo "| Driver Version: 550  CUDA Version: 12.4 |"; fi',
    )
    seen = host.host_facts()
    assert seen.gpus == ("NVIDIA H100 80GB HBM3",) * 2
    assert (seen.gpu_memory_bytes, seen.driver, seen.cuda) == (81559 * 2**20, "550.54.15", "12.4")


def test_a_broken_nvidia_smi_is_no_gpu(monkeypatch, tmp_path):
    fake_nvidia_smi(tmp_path, monkeypatch, "echo 'NVIDIA-SMI has failed'; exit 9")
    assert host.host_facts().gpus == ()
