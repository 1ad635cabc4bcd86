"""The machine that loadgen runs on."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import psutil

from loadgen.records import HostFacts

_QUERY = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")


def host_facts() -> HostFacts:
    """CPU, memory, system, and GPUs as `nvidia-smi` tells them; None or empty for what is not to be had."""
    gpus, gpu_memory_bytes, driver, cuda = _gpus()
    return HostFacts(
        cpu=_cpu_model(),
        cores=_usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus,
        gpu_memory_bytes=gpu_memory_bytes,
        driver=driver,
        cuda=cuda,
        os=f"{platform.system()} {platform.release()}",
    )


def _usable_cores() -> int | None:
    """Cores that this process may run on, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _cpu_model() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or None
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.machine() or None


def _gpus() -> tuple[tuple[str, ...], int | None, str | None, str | None]:
    """Names, memory of the first in bytes, driver, the newest CUDA that the driver takes."""
    rows = [row for line in _nvidia_smi(*_QUERY).splitlines() if len(row := line.split(", ")) == 3]
    if not rows:
        return (), None, None, None
    memory = rows[0][1].strip()
    cuda = re.search(r"CUDA Version\s*:\s*([\d.]+)", _nvidia_smi())
    return (
        tuple(row[0].strip() for row in rows),
        int(memory) * 2**20 if memory.isdigit() else None,
        rows[0][2].strip(),
        cuda[1] if cuda else None,
    )


def _nvidia_smi(*arguments: str) -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
