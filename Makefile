PYTHON ?= python3
VENV := .venv
CONSTRAINTS := constraints.txt
BIN := $(VENV)/bin

# A process whose test hung is not started again: it would hang in the same test.
IN_TWO := -n 2 --dist loadfile --max-worker-restart 0

# What `make test-pythons` tries.
PYTHONS ?= python3.11 python3.12 python3.13
OLDEST_PYTHON ?= python3.11

.PHONY: demo test lint cards crash fuzz test-pythons test-core test-oldest test-wheel docs clean
demo: $(VENV)/.demo
	$(BIN)/falcon-gnn demo

test: $(VENV)/.dev lint
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m pytest -q $(IN_TWO)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

# Kill the commands at 50 random moments each, and look at what they leave.
crash: $(VENV)/.dev
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 PYTHONPATH=. $(BIN)/python -m tests.crash 50

# Compile Triton's kernels for two cards, of which the tests take the older one.
cards: $(VENV)/.dev
	FALCON_CARDS="80 90" $(BIN)/python -m pytest -q tests/quantization/test_triton.py

fuzz: $(VENV)/.dev
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 FALCON_FUZZ=10000 $(BIN)/python -m pytest -q tests/test_fuzz.py

# The core on each interpreter that runs. A name on the path can lead nowhere (pyenv's do, unless it is told which
# versions are meant), so each is tried.
test-pythons:
	@export PYENV_VERSION="$${PYENV_VERSION:-$$(pyenv versions --bare 2>/dev/null | paste -sd: -)}"; found=; \
	for python in $(PYTHONS); do \
	  version=$$($$python -c 'import platform; print(platform.python_version())' 2>/dev/null) || \
	    { echo "$$python does not run here"; continue; }; \
	  echo "The core on Python $$version"; \
	  $(MAKE) --no-print-directory test-core PYTHON="$$python" VENV=".venvs/$$version" || exit 1; \
	  found="$$found $$version"; \
	done; \
	test -n "$$found" || { echo "None of PYTHONS runs: $(PYTHONS)"; exit 1; }; \
	echo "The core passes on$$found"

# The core on the lower bounds of pyproject.toml.
test-oldest:
	$(MAKE) --no-print-directory test-core PYTHON=$(OLDEST_PYTHON) VENV=.venvs/oldest CONSTRAINTS=.venvs/oldest.txt

# The wheel, built and used outside the source tree: without an extra, with [train], with [all].
test-wheel:
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(PYTHON) -m tests.wheel

# What needs no extra, in an environment without any.
test-core: $(VENV)/.core
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 NUMBA_CACHE_DIR=$(abspath $(VENV))/numba $(BIN)/python -m pytest -q -rfE $(IN_TWO) \
	  -m core --doctest-ignore-import-errors tests src

$(VENV)/.core: $(VENV)/bin/python pyproject.toml $(CONSTRAINTS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e ".[test]"
	touch $@

.venvs/oldest.txt: pyproject.toml tests/oldest.py
	mkdir -p $(@D)
	$(OLDEST_PYTHON) -m tests.oldest > $@

# The constraints pin every version, torch's among them: without it pip would fetch a CUDA build of several GB.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,report]"
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@ $(VENV)/.demo

# The site, strictly: a broken link or an unknown name fails. In an environment of its own.
docs: .venvs/docs/.docs
	NO_MKDOCS_2_WARNING=1 .venvs/docs/bin/mkdocs build --quiet

.venvs/docs/.docs: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv .venvs/docs
	.venvs/docs/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c $(CONSTRAINTS) \
	  -e ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) .venvs dist reduced runs .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
