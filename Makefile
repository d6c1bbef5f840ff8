# Everything needs Python 3.11 or later and the package index, and stays within this folder.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
export PIP_CACHE_DIR := $(CURDIR)/.cache/pip
export NUMBA_CACHE_DIR := $(CURDIR)/.cache/numba
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Each start of a Python would compile the whole toolkit where byte code is not kept. pip compiles
# nothing: Python does that with what is imported, a tenth of what is installed.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/pycache
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo notebook test test-process test-cluster test-docs test-cuda test-all \
    test-long test-python test-smoke test-torch test-spark test-spark-faults lint docs ptx bench clean

# Sets up .venv, and no more.
install: $(VENV)/.demo

# A network learns handwritten digits by chained map/reduce rounds; last line: its accuracy.
demo: $(VENV)/.demo
	@$(BIN)/python -m benchmarks.demo

# The notebooks of docs/notebooks, in a browser. Their cells call gradreduce.
notebook: $(VENV)/.notebook
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/jupyter notebook $(if $(filter 0,$(shell id -u)),--allow-root) \
	    --JupyterNotebookApp.default_url=/tree/docs/notebooks

# A case of each test that is neither slow nor in another lane (tests/quick.py and tests/lanes.py
# choose): what computes in one process.
test: $(VENV)/.test
	$(PYTEST) --quick 1 --lane unit

# All tests of each other lane: what is about processes, what needs a real Hadoop (Java and Maven;
# skipped without), what pages promise, and CUDA in Numba's simulator.
test-process: $(VENV)/.test
	$(PYTEST) --lane process

test-cluster: $(VENV)/.test
	$(PYTEST) --lane cluster

test-docs: $(VENV)/.test
	$(PYTEST) --lane docs

test-cuda: $(VENV)/.test
	$(PYTEST) --lane cuda

# All tests of all lanes but those of `make test-long`. In one session: a lane that waits, as for
# Hadoop, waits beside the others, and all share what a session starts.
test-all: $(VENV)/.test
	$(PYTEST)

# The tests that take over a minute each, or together, as the rungs of the ladder on a real Hadoop.
test-long: $(VENV)/.test .venv-spark/.spark
	$(PYTEST) -m long -o faulthandler_timeout=7200
	.venv-spark/bin/python -m pytest -n 0 -m "long and cluster" tests/spark tests/docs/test_pages.py

# What may depend on the version of Python: processes, imports, encodings, mrjob itself, the command
# line, and that a training has the same bits however it is run.
# make test-python VENV=.venv-3.14 PYTHON=python3.14
test-python: $(VENV)/.test
	$(PYTEST) --quick 2 \
	    -m "not fault and not cluster and not long" tests/cli tests/hdfs_utils tests/jobs \
	    tests/kernels/test_dispatch.py tests/kernels/test_scalar.py tests/kernels/test_text.py \
	    tests/mapreduce/batches tests/mapreduce/cli tests/mapreduce/job tests/mapreduce/launch \
	    tests/mapreduce/mrjob_patches tests/mapreduce/reduction tests/mapreduce/runners \
	    tests/mapreduce/support tests/test_bits.py tests/test_layering.py tests/test_startup.py

# One training, and one job.
test-smoke: demo
	$(BIN)/gradreduce run jobs/word_count.py -q README.md > /dev/null

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin

# The site of docs/, into build/site; what does not resolve is an error.
docs: $(VENV)/.docs
	$(BIN)/sphinx-build -q -W --keep-going docs build/site

# Compiles every CUDA kernel with NVIDIA's compiler, which needs no GPU but 0.8 GB of disk.
ptx: .venv-ptx/.ptx
	.venv-ptx/bin/python tests/kernels/ptx.py

# A few cases of what needs PyTorch, Triton's client, ONNX or optuna, in an environment of its own: 3 GB.
test-torch: .venv-torch/.torch
	.venv-torch/bin/python -m pytest -n auto --dist worksteal --quick 2 tests/mapreduce/models/test_torch_module.py \
	    tests/mapreduce/training/test_given.py tests/test_bits.py tests/docs/test_pages.py \
	    tests/mapreduce/serving/test_triton.py tests/mapreduce/training/test_onnx.py \
	    tests/mapreduce/searching/test_samplers.py tests/faults/test_searches.py \
	    -k "torch or given or triton or onnx or samplers or tpe"

# Jobs and trainings on Spark, which needs Java, in an environment of its own: 0.5 GB.
test-spark: .venv-spark/.spark
	.venv-spark/bin/python -m pytest -n 2 --dist loadfile -m "not (long and (fault or cluster))" tests/spark tests/docs/test_pages.py -k spark

# Processes of Spark are killed at random moments: a quarter of an hour.
test-spark-faults: .venv-spark/.spark
	.venv-spark/bin/python -m pytest -n 0 -m "long and fault" tests/spark

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or later is needed, $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.python setup.cfg
	$(BIN)/pip install -q --no-compile -e '.[datasets,jobs]'
	@touch $@

$(VENV)/.notebook: $(VENV)/.python setup.cfg
	$(BIN)/pip install -q --no-compile -e '.[datasets,notebook]'
	@touch $@

$(VENV)/.test: $(VENV)/.python setup.cfg
	$(BIN)/pip install -q --no-compile -e '.[test]'
	@touch $@

$(VENV)/.lint: $(VENV)/.python setup.cfg
	$(BIN)/pip install -q --no-compile -e '.[test,lint]'
	@touch $@

$(VENV)/.docs: $(VENV)/.python setup.cfg
	$(BIN)/pip install -q --no-compile -e '.[docs]'
	@touch $@

$(VENV)/.bench: $(VENV)/.python setup.cfg
	$(BIN)/pip install -q --no-compile -e '.[bench]'
	@touch $@

.venv-ptx/.ptx: tests/kernels/ptx.txt
	$(PYTHON) -m venv .venv-ptx
	.venv-ptx/bin/pip install -q --no-compile -r tests/kernels/ptx.txt
	@touch $@

.venv-torch/.torch: setup.cfg
	$(PYTHON) -m venv .venv-torch
	.venv-torch/bin/pip install -q --no-compile --no-cache-dir -e '.[test,torch,triton,onnx,onnxruntime,search]'
	@touch $@

.venv-spark/.spark: setup.cfg
	$(PYTHON) -m venv .venv-spark
	.venv-spark/bin/pip install -q --no-compile --no-cache-dir -e '.[test,spark]'
	@touch $@

clean:
	rm -rf $(VENV) .venv-ptx .venv-torch .venv-spark .cache demo build *.egg-info
