# `make repro` runs the default pipeline, `make test` the checks; both set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready
EXTRAS := .[dvc,dev,search,timm]

.PHONY: repro papers test docs format clean

repro: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" dvc repro
	@echo
	@cat data/report/*/recall.md

# Every published system on the dataset of params.yaml, in one process.
papers: $(READY)
	$(BIN)/pipeline run all

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto

docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "site/index.html is ready to be opened in a browser"

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The environment is made again when what it holds changes. uv installs it where it is there or can be
# had from the package index, else pip does. What was interrupted has no .ready, and starts again.
$(READY): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version). Name another with: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
	@uv=$$(command -v uv) || \
	  { $(BIN)/python -m pip install --quiet --disable-pip-version-check uv && uv=$(BIN)/uv; } || uv=; \
	echo "installing the packages of constraints.txt into $(VENV) (6 GB, most of it torch) with $$([ -n "$$uv" ] && echo uv || echo pip)"; \
	if [ -n "$$uv" ]; then \
	  "$$uv" pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '$(EXTRAS)'; \
	else \
	  $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '$(EXTRAS)'; \
	fi || { echo "packages could not be installed: see above; with the network and the disk in order, give the same command again"; exit 1; }
	@touch $@

# What only the documentation site needs comes on top, when a site is first built.
$(DOCS_READY): $(READY)
	@echo "installing the packages of the documentation site into $(VENV)"
	@if [ -x $(BIN)/uv ]; then \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[docs]'; \
	else \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'; \
	fi || { echo "packages could not be installed: see above; with the network and the disk in order, give the same command again"; exit 1; }
	@touch $@

clean:
	rm -rf $(VENV)
