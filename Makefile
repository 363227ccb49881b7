# Every target is safe to run on a fresh clone: whatever needs the environment makes it first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMP := $(VENV)/.set-up

# A file of tests stays in one process, because starting Spark takes seconds. Each of the processes
# may have a Spark of its own, so there are not too many. tests/conftest.py puts long files first.
PARALLEL := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# A Spark or Python path from the surrounding shell would quietly replace the locked packages.
unexport SPARK_HOME
unexport PYTHONPATH

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup test test-long test-kafka test-remote lint format typecheck bench chaos demo docs pictures notebooks lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with the locked dependencies, and see that Java is there
	@sh scripts/check-java.sh

$(STAMP): requirements-build.lock requirements.lock pyproject.toml
	@PYTHON='$(PYTHON)' sh scripts/make-venv.sh $(VENV)
	@echo "Installing the locked dependencies (the first time some 600 MB: a few minutes)"
	@$(PIP) install --quiet --require-hashes -r requirements-build.lock
	@$(PIP) install --quiet --use-pep517 --no-build-isolation --require-hashes -r requirements.lock
	@echo "Installing sparkswarm itself, editable"
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@found=$$($(PIP) check) || { \
		echo "$$found"; echo "requirements.lock does not fit pyproject.toml: run make lock"; exit 1; }
	@touch $@

test: lint typecheck ## Run all checks: formatting, lint, types, then the tests (PYTEST_ARGS=...)
	@sh scripts/check-chromium.sh
	@echo "== pytest"
	@# Once and in advance: otherwise every process of the tests and of Spark compiles them at once.
	@$(BIN)/python -c "from sparkswarm.demo.warm_up import main; main()"
	@$(BIN)/pytest $(PARALLEL) $(PYTEST_ARGS)

test-long: setup ## Run all tests, the long ones too, with many more random examples
	@HYPOTHESIS_PROFILE=long $(BIN)/pytest $(PARALLEL) -m "not kafka and not remote" $(PYTEST_ARGS)

test-kafka: setup ## Run the tests that need a Kafka broker, which they start and end
	@sh scripts/fetch-jars.sh $(BIN)/python kafka
	@$(BIN)/pytest -m kafka tests/kafka $(PYTEST_ARGS)

test-remote: setup ## Run the tests on a cluster with S3 and HDFS, and the guide to clusters; they start and end all
	@sh scripts/fetch-jars.sh $(BIN)/python s3
	@sh scripts/fetch-jars.sh $(BIN)/python hdfs
	@$(BIN)/pytest -m remote tests/remote $(PYTEST_ARGS)

lint: setup ## Check formatting and lint
	@echo "== ruff format --check"
	@$(BIN)/ruff format --check .
	@echo "== ruff check"
	@$(BIN)/ruff check .

format: setup ## Format the code and fix what lint can fix by itself
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

typecheck: setup ## Check the types
	@echo "== mypy"
	@$(BIN)/mypy

bench: setup ## Run the benchmarks: the protocol's overhead, then the balance it reaches
	@$(BIN)/sparkswarm bench overhead
	@$(BIN)/sparkswarm bench balance

chaos: setup ## Break real Spark in every way of docs/reliability.md (CHAOS_ARGS="--minutes 10")
	@$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

demo: setup ## Run the demo (DEMO_ARGS=...)
	@$(BIN)/python -c "from sparkswarm.demo.warm_up import main; main()"
	@$(BIN)/sparkswarm demo $(DEMO_ARGS)

docs: setup ## Fill the generated parts of docs/, then build the site into site/
	@$(BIN)/python scripts/generate_docs.py
	@# Not --quiet: it would count no warnings, and --strict would let all pass.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Built site/; search needs a server: python3 -m http.server --directory site"

pictures: setup ## Draw the pictures of the docs again, and take those of the live map
	@$(BIN)/python scripts/draw_concepts.py
	@$(BIN)/python scripts/photograph_map.py

notebooks: setup ## Run the notebooks of the docs, and keep what they show
	@$(BIN)/python scripts/run_notebooks.py

# With the certificates the system trusts, as pip does where a company adds its own.
# Versions already locked stay unless they must change; LOCK_ARGS=--upgrade takes the newest.
lock: ## Write the lock files anew from pyproject.toml (LOCK_ARGS=--upgrade for newest)
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && \
	PYTHON='$(PYTHON)' sh scripts/make-venv.sh "$$tmp/venv" && \
	"$$tmp/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv && \
	compile() { "$$tmp/venv/bin/uv" pip compile --quiet --system-certs --universal \
		--generate-hashes --python "$$tmp/venv/bin/python" --python-version 3.11 \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
		$(LOCK_ARGS) "$$@"; } && \
	compile --extra all --group dev --output-file requirements.lock pyproject.toml && \
	compile --group build --constraints requirements.lock \
		--output-file requirements-build.lock && \
	echo "Wrote requirements.lock and requirements-build.lock"

clean: ## Remove .venv, caches and build products
	@rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist site
	@rm -rf artifacts derby.log metastore_db spark-warehouse
	@find src tests -type d -name __pycache__ -prune -exec rm -rf {} +
