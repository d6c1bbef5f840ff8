# Everything needs Python 3.11 or later and the package index, and stays within this folder.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_CACHE_DIR := $(CURDIR)/.cache/pip
export NUMBA_CACHE_DIR := $(CURDIR)/.cache/numba
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-fast lint ptx bench clean

# A network learns handwritten digits by chained map/reduce rounds; last line: its accuracy.
demo: $(VENV)/.demo
	@$(BIN)/python -m benchmarks.demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal

# What does not start clusters, kill drivers or train for long.
test-fast: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow and not fault"

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Compiles every CUDA kernel with NVIDIA's compiler, which needs no GPU but 0.8 GB of disk.
ptx: .venv-ptx/.ptx
	.venv-ptx/bin/python tests/kernels/ptx.py

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or later is needed, $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.python setup.cfg
	$(BIN)/pip install -q -e '.[datasets]'
	@touch $@

$(VENV)/.test: $(VENV)/.python setup.cfg
	$(BIN)/pip install -q -e '.[test]'
	@touch $@

$(VENV)/.lint: $(VENV)/.python setup.cfg
	$(BIN)/pip install -q -e '.[test,lint]'
	@touch $@

$(VENV)/.bench: $(VENV)/.python setup.cfg
	$(BIN)/pip install -q -e '.[bench]'
	@touch $@

.venv-ptx/.ptx: tests/kernels/ptx.txt
	$(PYTHON) -m venv .venv-ptx
	.venv-ptx/bin/pip install -q -r tests/kernels/ptx.txt
	@touch $@

clean:
	rm -rf $(VENV) .venv-ptx .cache demo build *.egg-info
