#!/bin/sh
# Serves one arm by hand, without loadgen.
#
#   deploy/vllm/serve.sh ARM [vLLM's own flags]
#   deploy/vllm/serve.sh fp8 --model meta-llama/Llama-3.1-8B-Instruct --port 8000
#   SHARED=deploy/vllm/tiny-cpu.yaml deploy/vllm/serve.sh fp8 --port 8000
#
# ARM is a name in deploy/vllm/arms or a YAML file. SHARED: the file of shared flags (common.yaml beside this script unless
# given). Flags on the command line beat the arm's, which beat the shared ones. VENV: .venv-vllm unless given.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
SHARED=${SHARED:-$here/common.yaml}
VENV=${VENV:-.venv-vllm}

fail() {
    printf 'serve: %s\n' "$*" >&2
    exit 2
}

arms() { for file in "$here"/arms/*.yaml; do basename "$file" .yaml; done | tr '\n' ' '; }

[ $# -ge 1 ] || fail "which arm? One of: $(arms)"
case $1 in -h | --help)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    printf 'Arms: %s\n' "$(arms)"
    exit 0
    ;;
esac
arm=$1
shift
if [ -f "$arm" ]; then file=$arm; else file=$here/arms/$arm.yaml; fi
[ -f "$file" ] || fail "$arm: no such arm. Known: $(arms)or a YAML file"
[ -f "$SHARED" ] || fail "$SHARED: no such file"
[ -x "$VENV/bin/python" ] || fail "$VENV has no vLLM; run $here/install.sh $VENV"

merged=$(mktemp -t "loadgen-$(basename "$file" .yaml)-XXXXXX")
mv "$merged" "$merged.yaml" # vLLM wants the ending
merged=$merged.yaml
trap 'rm -f "$merged"' EXIT
"$VENV/bin/python" - "$SHARED" "$file" >"$merged" <<'PY'
import sys, yaml
flags = {}
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        flags.update(yaml.safe_load(file) or {})
yaml.safe_dump(flags, sys.stdout)
PY

export VLLM_NO_USAGE_STATS="${VLLM_NO_USAGE_STATS:-1}" DO_NOT_TRACK="${DO_NOT_TRACK:-1}"
"$VENV/bin/python" -m vllm.entrypoints.openai.api_server --config "$merged" "$@" &
server=$!
trap 'kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -f "$merged"' INT TERM EXIT
status=0
wait "$server" || status=$?
exit "$status"
