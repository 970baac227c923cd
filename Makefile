# Two commands do everything on a machine with Python 3.11 or newer: make demo, make test.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)

ifdef UV
  CREATE = uv venv --quiet --python $(PYTHON) $(VENV)
  INSTALL = uv pip install --quiet --python $(BIN)/python
else
  CREATE = $(PYTHON) -m venv $(VENV)
  INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

.PHONY: demo test test-slow fuzz lint types docs release bench clean

$(BIN)/python:
	$(CREATE)

$(VENV)/.runtime: pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[viz]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.runtime

demo: $(VENV)/.runtime
	rm -rf demo
	$(BIN)/bisimetric solve --transport sinkhorn:1.0,diagonal=zero --alpha decay:0.8,0.015625 --noise 0.05,0.1 --steps 200 --out demo

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools

# Benchmarks are checked, too, so that they keep up with what they call: nobody runs all of them for each change.
types: $(VENV)/.dev
	$(BIN)/mypy
	$(BIN)/mypy --config-file= --check-untyped-defs --ignore-missing-imports --follow-untyped-imports --disable-error-code arg-type benchmarks tools

# The documentation, in docs/_build/html; warnings are errors.
docs: $(VENV)/.dev
	$(BIN)/sphinx-build -W --keep-going -q -E -b html docs docs/_build/html
	@echo docs/_build/html/index.html

# Wheel and sdist: built, checked, installed into an empty environment and tried (see tools/release.py).
release: $(VENV)/.dev
	$(BIN)/python tools/release.py

test: lint types
	$(BIN)/python -m pytest -m 'not slow' -n auto --maxprocesses 4 --dist worksteal

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# A million damaged inputs for all readers; FUZZ=5000 for fewer.
FUZZ ?= 1000000
fuzz: $(VENV)/.dev
	$(BIN)/python tests/fuzz_readers.py --count $(FUZZ)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/peers.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
