# Everything a newcomer needs: `make index`, `make query Q="…"`, `make test`. `make help` lists all.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint configs/constraints.txt
CONFIG ?= configs/default.toml
Q ?= When is the finally clause of a generator executed?
ARGS ?=
# As it was typed: a dollar sign in a question is no make variable.
export QUESTION := $(value Q)

.DEFAULT_GOAL := help
.PHONY: help install index query serve test check format bench-encode bench-embed bench-serve soak clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'
	@echo
	@echo '  ARGS="…" passes options on: make index ARGS="--corpus notes/"'

install: $(VENV)/.installed ## Create .venv and install (repeatable: versions from configs/constraints.txt)

$(VENV)/.installed: pyproject.toml configs/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; name another with PYTHON=…")'
	@echo "installing into $(VENV): about 2 GB with a CPU build of torch, a few minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --editable '.[default]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing what tests and checks need"
	@$(PIP_INSTALL) --editable '.[default,dev,ray]'
	@touch $@

index: install ## Build both indexes of the default corpus (CONFIG=…, ARGS=…)
	@$(BIN)/lastpage index --config $(CONFIG) $(ARGS)

query: install ## Ask both arms: make query Q="your question"
	@$(BIN)/lastpage query $(ARGS) "$$QUESTION"

serve: install ## Answer over HTTP, with a page at http://127.0.0.1:8000/
	@$(BIN)/lastpage serve $(ARGS)

test: $(VENV)/.installed-dev ## Run all tests
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.installed-dev ## Lint, format, types and architecture rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev ## Mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-encode: $(VENV)/.installed-dev ## Measure the encoder: ratios of paired runs (ARGS=--quick for a short run)
	$(BIN)/python tests/benchmarks/bench_encode.py $(ARGS)

bench-embed: $(VENV)/.installed-dev ## Measure the embed stage beside its encoder (ARGS=--quick for a short run)
	$(BIN)/python -m tests.benchmarks.bench_embed $(ARGS)

bench-serve: $(VENV)/.installed-dev ## Measure the service beside bare FAISS and encoder (ARGS="--chunks 20000")
	$(BIN)/python -m tests.benchmarks.bench_serve $(ARGS)

soak: $(VENV)/.installed-dev ## Edit, kill, damage and resume at random, 50 rounds (ARGS="--rounds 10 --seed 3")
	$(BIN)/python -m tests.benchmarks.soak $(ARGS)

clean: ## Remove .venv and caches (never runs/)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
