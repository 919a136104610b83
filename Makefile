# Everything goes through `make setup`, which makes .venv from the lock file.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
WORKERS ?= 2
# Tests also wait, for disks and for a JVM.
TEST_WORKERS ?= 3
# Compiled modules are kept: processes of tests, Spark and benchmarks import them again and again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup java demo test check lint types layers slow spark35 fuzz interop interop-env \
	interop-smoke interop-changes interop-concurrent interop-stream interop-spark interop-writes \
	interop-kills interop-service-kills interop-index-kills interop-hfiles interop-locks \
	interop-upserts interop-services interop-indexes interop-writers sim bench bench-spark bench-writing bench-keyed \
	bench-metadata-reading bench-metadata-writing bench-services lock clean

help: ## Show this help
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 24

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
	$(BIN)/python -m pytest -q -n $(TEST_WORKERS) -m "not slow and not long and not interop" $(ARGS) tests

check: lint types layers

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports --no-cache

slow: setup java ## The longer proofs that need no Hudi; a third of them: make slow PART=0/3
	$(BIN)/python -m pytest -q -n $(TEST_WORKERS) -m "slow or (hypothesis and not interop)" \
		--hypothesis-profile=thorough $(if $(PART),--part $(PART)) tests

spark35: setup java ## The tests of the Spark room on Spark 3.5, where most Hudi users are
	$(BIN)/python scripts/spark_env.py 35
	.venv-spark35/bin/python -m pytest -q -m "not slow" tests/spark

fuzz: setup ## A hundred thousand damaged files, over all readers
	$(BIN)/python -m lakewright.testing.fuzz --files 100000 --jobs $(WORKERS) $(ARGS)

interop-env: setup java ## The environment and the jars of real Hudi
	$(BIN)/python scripts/hudi_env.py

interop: interop-env ## Prove agreement with real Hudi, reading and writing; write docs/compatibility*.md
	$(BIN)/python -m interop.run $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m interop.written)
	$(if $(ARGS),,$(BIN)/python -m interop.keyed)
	$(if $(ARGS),,$(BIN)/python -m interop.serviced)
	$(if $(ARGS),,$(BIN)/python -m interop.indexed)

interop-smoke: interop-env ## A dozen tables of the interop corpus, for continuous integration
	$(BIN)/python -m interop.run --only 'v6_mor_pending_compaction_*' 'v6_mor_deletes_*' 'v8_mor_updates_*' 'v8_mor_partial_update*' 'v9_mor_compaction_*' 'v9_cow_overwrites_*'

interop-changes: interop-env ## Compare every incremental range and change data with real Hudi
	$(BIN)/python -m interop.changes $(ARGS)

interop-concurrent: interop-env ## Read tables for two minutes each while Hudi writes them
	$(BIN)/python -m interop.concurrent $(ARGS)

interop-stream: interop-env ## Kill and restart a stream while Hudi writes its table
	$(BIN)/python -m interop.stream_proof --version 6 $(ARGS)
	$(BIN)/python -m interop.stream_proof --version 8 $(ARGS)

interop-spark: setup java ## Compare Spark with a scan on every table at hand, on Spark 3.5 and 4
	$(BIN)/python scripts/spark_env.py 35
	.venv-spark35/bin/python -m interop.spark_rows $(ARGS)
	$(BIN)/python -m interop.spark_rows $(ARGS)

interop-writes: interop-env ## Take tables through every write; real Hudi reads and goes on after each
	$(BIN)/python -m interop.written $(ARGS)

interop-upserts: interop-env ## Upsert and delete by every index; real Hudi reads and goes on after each
	$(BIN)/python -m interop.keyed $(ARGS)

interop-services: interop-env ## Service tables in turns with real Hudi; each executes the other's plans
	$(BIN)/python -m interop.serviced $(ARGS)

interop-indexes: interop-env ## Keep metadata tables right in turns with real Hudi
	$(BIN)/python -m interop.indexed $(ARGS)

interop-writers: interop-env ## Several writers, ours and Hudi, upsert and delete overlapping keys at once
	$(BIN)/python -m interop.keyed_writers $(ARGS)

interop-kills: interop-env ## Kill writers at every phase; the next reader and writer must be right
	$(BIN)/python -m interop.kill_writes $(ARGS)

interop-service-kills: interop-env ## Kill and stop compaction, clean and rollback at every phase beside others
	$(BIN)/python -m interop.service_kills $(ARGS)

interop-index-kills: interop-env ## Kill commits with all indexes before every change; both engines go on
	$(BIN)/python -m interop.index_kills $(ARGS)

interop-hfiles: interop-env ## HBase's reader and Hudi's own read HFiles that lakewright wrote
	$(BIN)/python -m interop.hfiles

interop-locks: interop-env ## Hudi and lakewright write one table under Hudi's lock file
	$(BIN)/python -m interop.lock_proof --hudi 0.15.0 $(ARGS)
	$(BIN)/python -m interop.lock_proof --hudi 1.0.2 $(ARGS)

SEEDS ?= 100000
sim: setup ## So many simulated worlds, and a fiftieth with real files: make sim SEEDS=1000
	$(BIN)/python -m lakewright.testing.sim --worlds $(SEEDS) --jobs $(WORKERS) $(ARGS)

bench: setup ## Measure; reports and plots go to bench/results
	$(BIN)/python -m bench.run $(ARGS)

bench-spark: interop-env ## Measure on Spark, beside Parquet and real Hudi
	$(BIN)/python scripts/spark_env.py 35
	$(BIN)/python -m bench.spark $(ARGS)

bench-writing: interop-env ## Measure writing, beside real Hudi
	$(BIN)/python scripts/spark_env.py 35
	$(BIN)/python -m bench.writing $(ARGS)

bench-services: interop-env ## Measure compaction, clean and archiving, beside real Hudi
	$(BIN)/python scripts/spark_env.py 35
	$(BIN)/python -m bench.services $(ARGS)

bench-metadata-reading: interop-env ## Measure planning and look-ups by the metadata table
	$(BIN)/python -m bench.metadata_reading $(ARGS)

bench-metadata-writing: interop-env ## Measure what the metadata table costs, beside real Hudi
	$(BIN)/python scripts/spark_env.py 35
	$(BIN)/python -m bench.metadata_writing $(ARGS)

bench-keyed: interop-env ## Measure upserts and deletes, beside real Hudi and deltalake
	$(BIN)/python scripts/spark_env.py 35
	$(BIN)/python -m bench.keyed $(ARGS)

lock: setup ## Pin the dependencies again
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --no-header --upgrade --extra dev pyproject.toml -o requirements/dev.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --no-header --upgrade pyproject.toml requirements/spark35.in -o requirements/spark35.lock

clean: ## Remove environments and caches
	rm -rf $(VENV) .venv-hudi .venv-spark35 .cache .mypy_cache .ruff_cache .hypothesis
