# `make repro` runs the default pipeline, `make test` the checks; both set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: repro test format clean

repro: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" dvc repro
	@echo
	@cat data/reports/recall.md

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The environment is made again when what it holds changes.
$(READY): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version). Name another with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dvc,dev,search,timm]'
	@touch $@

clean:
	rm -rf $(VENV)
