# Everything a newcomer needs: `make index`, `make query Q="…"`, `make test`. `make help` lists all.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONFIG ?= configs/default.toml
Q ?= When is the finally clause of a generator executed?
ARGS ?=
export Q

.DEFAULT_GOAL := help
.PHONY: help install index query test check format bench-encode bench-embed soak clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'
	@echo
	@echo '  ARGS="…" passes options on: make index ARGS="--corpus notes/"'

install: $(VENV)/.installed ## Create .venv and install (repeatable: versions from configs/constraints.txt)

$(VENV)/.installed: pyproject.toml configs/constraints.txt
	@echo "installing into $(VENV): about 2 GB with a CPU build of torch, a few minutes"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; name another with PYTHON=…")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint configs/constraints.txt --editable '.[default,dev]'
	@touch $@

index: install ## Build both indexes of the default corpus (CONFIG=…, ARGS=…)
	@$(BIN)/lastpage index --config $(CONFIG) $(ARGS)

query: install ## Ask both arms: make query Q="your question"
	@$(BIN)/lastpage query $(ARGS) "$$Q"

test: install ## Run all tests
	$(BIN)/python -m pytest $(ARGS)

check: install ## Lint, format, types and architecture rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## Mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-encode: install ## Measure the encoder: ratios of paired runs (ARGS=--quick for a short run)
	$(BIN)/python tests/benchmarks/bench_encode.py $(ARGS)

bench-embed: install ## Measure the embed stage beside its encoder (ARGS=--quick for a short run)
	$(BIN)/python -m tests.benchmarks.bench_embed $(ARGS)

soak: install ## Edit, kill, damage and resume at random, 50 rounds (ARGS="--rounds 10 --seed 3")
	$(BIN)/python -m tests.benchmarks.soak $(ARGS)

clean: ## Remove .venv and caches (never runs/)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
