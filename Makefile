# Everything goes through `make setup`, which makes .venv from the lock file.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup java demo test check lint types layers interop interop-env interop-smoke bench slow lock clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Make .venv with everything a developer needs

$(STAMP): requirements/dev.lock pyproject.toml
	@sh scripts/check_python.sh "$(PYTHON)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

java: ## Check for Java 17, install it on Debian as root
	@sh scripts/check_java.sh

demo: setup java ## Open real tables, query and inspect them, print a report
	$(BIN)/python -m lakewright.cli.app demo

test: setup java check ## Lint, types, layers and the quick test suite
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "not slow and not interop" tests

check: lint types layers

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports --no-cache

slow: setup ## The longer proofs that need no Hudi
	$(BIN)/python -m pytest -q -n $(WORKERS) -m slow tests

interop-env: setup java ## The environment and the jars of real Hudi
	$(BIN)/python scripts/hudi_env.py

interop: interop-env ## Prove agreement with real Hudi; write docs/compatibility.md
	$(BIN)/python -m interop.run $(ARGS)

interop-smoke: interop-env ## A dozen tables of the interop corpus, for continuous integration
	$(BIN)/python -m interop.run --only 'v6_mor_pending_compaction_*' 'v6_mor_deletes_*' 'v8_mor_updates_*' 'v8_mor_partial_update*' 'v9_mor_compaction_*' 'v9_cow_overwrites_*'

bench: setup ## Measure; reports and plots go to bench/results
	$(BIN)/python -m bench.run $(ARGS)

lock: setup ## Pin the dependencies again
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --no-header --upgrade --extra dev pyproject.toml -o requirements/dev.lock

clean: ## Remove environments and caches
	rm -rf $(VENV) .venv-hudi .cache .mypy_cache .ruff_cache .hypothesis
