PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint crash fuzz clean
demo: $(VENV)/.demo
	$(BIN)/falcon-gnn demo

test: $(VENV)/.dev lint
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

# Kill the commands at 50 random moments each, and look at what they leave.
crash: $(VENV)/.dev
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 PYTHONPATH=. $(BIN)/python -m tests.crash 50

fuzz: $(VENV)/.dev
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 FALCON_FUZZ=10000 $(BIN)/python -m pytest -q tests/test_fuzz.py

# The constraints pin every version, torch's among them: without it pip would fetch a CUDA build of several GB.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,report]"
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) reduced runs .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
