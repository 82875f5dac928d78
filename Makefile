# Each target does its own set-up and is quick when nothing changed.
#   make demo   the main job on real text, to a report
#   make test   the whole test suite

PYTHON ?= $(firstword $(foreach version,3.11 3.12 3.13,$(shell command -v python$(version))) python3)
VENV := .venv
BIN := $(VENV)/bin
# one thread a process: tests and demo run several processes side by side
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-fast test-cluster faults docs lint clean

demo: $(VENV)/.studies
	$(BIN)/polyhead run studies/mofa-demo.yaml

test: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist worksteal -m "not cluster"

test-cluster: $(VENV)/.dev
	$(BIN)/pytest -m cluster

test-fast: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"

# What was injected, what survived, what was lost: printed, and written into docs/faults.md.
faults: $(VENV)/.dev
	$(BIN)/pytest tests/faults --write-faults

# The docs as a site, warnings as errors.
docs: $(VENV)/.docs
	$(BIN)/zensical build --strict --clean
	@echo "build/docs/index.html; with search: $(BIN)/python -m http.server --directory build/docs"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) runs

# The stamp is written last, so an interrupted installation is taken up again.
$(VENV)/.studies: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[studies]"
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@ $(VENV)/.studies $(VENV)/.docs

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[docs]"
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
