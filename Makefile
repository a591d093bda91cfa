# Needs Python 3.11+ and make, nothing else; uses uv when it is there. `make` alone lists the targets.

PYTHON ?= python3
ARGS ?=
# Five test processes for two processors, since many tests wait for servers and children; each process has a server.
WORKERS ?= $(shell $(PYTHON) -c 'import os; own = getattr(os, "sched_getaffinity", None); print(min(16, 5 * (len(own(0)) if own else os.cpu_count() or 1) // 2))')

# These tests wait for nothing: more processes than processors would only collect them once more.
QUICK_WORKERS ?= $(shell expr \( $(WORKERS) + 1 \) / 3)
# What make quick runs: all that decides, two engines, and one look at each of the other rooms.
SUITE := tests/conformance/test_engines.py
QUICK := tests/core tests/house/test_house.py tests/engines/memory tests/runtime/writes/test_batcher.py tests/client/submission/test_submit.py tests/test_flow.py \
	tests/worker/test_slots.py tests/cli/commands/test_submit.py tests/maintenance/test_planner.py tests/docs/test_paths.py \
	$(SUITE)::TestMemory $(SUITE)::TestSqlite \
	$(SUITE)::TestPostgres::test_the_result_is_what_the_core_picks $(SUITE)::TestPostgres::test_find_agrees_with_the_core

# What is compiled is kept, also if the environment says otherwise: tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)

ifneq ($(UV),)
create = $(UV) venv --quiet --seed --allow-existing --python "$(PYTHON)" $(VENV)
install = $(UV) pip install --python $(BIN)/python
else
create = $(PYTHON) -m venv $(VENV)
# Dependency groups came with pip 25.1, so pip itself is brought up to date first.
install = $(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade "pip>=25.1" && \
	$(BIN)/python -m pip install --disable-pip-version-check
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test quick soak fuzz check fix bench docs site clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/.package ## run the demo; options in ARGS, as in make run ARGS=--once
	@$(BIN)/headrace demo $(ARGS)

test: $(VENV)/.dev ## run all tests; options for pytest in ARGS, as in make test ARGS="-k retry" or ARGS=--every-engine
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

quick: $(VENV)/.dev ## run the core, memory and SQLite tests and a smoke of the rest, within a minute on two cores
	@$(BIN)/python -m pytest -q -n $(QUICK_WORKERS) $(QUICK) $(ARGS)

soak: $(VENV)/.dev ## run the tests that take minutes, and the kills of make test again and again, one after another; options for pytest in ARGS
	@HEADRACE_SOAK=1 $(BIN)/python -m pytest -s $(if $(findstring tests/,$(ARGS)),,tests/soak tests/crash) $(ARGS)

fuzz: $(VENV)/.dev ## ask a hub for all that its API promises, 1,000 examples an operation, with a new seed each time
	@HEADRACE_EXAMPLES=1000 $(BIN)/python -m pytest -s --every-engine tests/hub/openapi/test_contract.py tests/hub/test_hostile.py $(ARGS)

check: $(VENV)/.dev ## formatting, lint, types and layers
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: make fix" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --strict --no-error-summary src tests bench docs examples/engine
	@$(BIN)/basedpyright
	@$(BIN)/python docs/examples.py build/examples
	@cd build/examples && MYPYPATH=../../src ../../$(BIN)/mypy --strict --no-error-summary --explicit-package-bases \
		--cache-dir ../../.mypy_cache .
	@$(BIN)/basedpyright --project build/examples
	@report=$$($(BIN)/lint-imports --no-logo) || { echo "$$report"; exit 1; }

fix: $(VENV)/.dev ## format, and repair what lint can repair
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

bench: $(VENV)/.dev ## run the benchmarks; options in ARGS
	@$(BIN)/python -m bench $(ARGS)

docs: $(VENV)/.dev ## write docs/reference and drawings anew; pictures too, if out of date or ARGS=--again
	@$(BIN)/python docs/generate.py
	@$(BIN)/python docs/drawings.py
	@$(BIN)/python docs/pictures.py $(ARGS)
	@$(BIN)/python docs/screens.py $(ARGS)

site: $(VENV)/.dev ## build the documentation as a site, with search, into site/
	@$(BIN)/python docs/site.py

clean: ## remove everything that make has created
	@rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find src tests bench docs examples -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps, renewed when pyproject.toml changes: the demo needs the package and what serves its dashboard, all else needs the tools too.
$(VENV)/.package: pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "installing headrace and what it needs into $(VENV), once; this takes up to a minute" >&2
	@$(install) --editable '.[hub]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "installing headrace and its development tools into $(VENV), once; this takes a few minutes" >&2
	@$(install) --editable . --group dev
	@$(BIN)/python -m tests.support.servers.pgbouncer || true # fetched now, so that no test needs the network
	@$(BIN)/python -m tests.support.screens.browser || true # likewise, unless Chromium is installed
	@$(BIN)/python -m tests.support.tools || true # likewise: curl and jq, unless they are installed, and what makes a client in TypeScript
	@touch $(VENV)/.package $@

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit("headrace needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=...") if sys.version_info < (3, 11) else None'
	@$(create) || { rm -rf $(VENV); exit 1; }
