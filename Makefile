# Everything here runs plain `python -m …` commands: docs/local-stack.md lists them.
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
SHELL := /bin/bash
# Container images set it. The commands here start many processes, each of which would compile the source anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(or $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import ensurepip, ssl, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done),python3)
PY := .venv/bin/python

EVENTS ?= 5000
KEYS ?= 80
DEMO ?=
FAULTS ?= 60
SOURCE ?= cosmos
SEED ?=
CHAOS ?=
UP ?=
LOCK ?=

PROCESSES ?= 5
PYTEST = $(PY) -m pytest -n $(PROCESSES) --dist loadgroup
TESTS ?=
SLOW ?= slow
ADVERSE ?=
RELEASE ?=

# slipcover takes little time for it: coverage.py, before Python 3.12, half as much again as the tests. It warns that it
# measures no branches of tests.
COVERED = $(PY) -W "ignore:Unable to activate pytest branch coverage" -m slipcover --json --out .coverage.json -m pytest -n $(PROCESSES) --dist loadgroup
COVERAGE = $(PY) -m slipcover --merge .coverage.json --out .coverage.json --fail-under

FUZZ_EXAMPLES ?= 100000
MUTANTS ?=
FULL ?=
BENCH ?=
SUITE ?=
DOCS ?=

REQUIREMENTS := pyproject.toml requirements.txt $(wildcard packages/*/pyproject.toml)
SETUP = .venv/.installed-$(if $(filter sql,$(SOURCE)),sql,local)

.PHONY: help lock setup demo chaos fuzz mutants spec simulate bench up down test test-slow test-all test-adverse coverage release-check infra-check lint types worker-test sdk-suites languages blobs docs clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-16s %s\n", $$1, $$2 }'

setup: .venv/.installed-test ## Create .venv with the pinned packages of the local stack and of the tests

# Each target installs the group of pyproject.toml that it uses.
.venv/.installed-%: $(REQUIREMENTS)
	@command -v "$(PYTHON)" >/dev/null || { echo "Python 3.11 or later is needed, and $(PYTHON) is not found: \
	install it, or set PYTHON=/path/to/python" | tr -s '\t ' ' ' >&2; exit 1; }
	@"$(PYTHON)" local/make_venv.py $*

demo: $(SETUP) ## Write, relay and receive events, and count: SOURCE=sql EVENTS= KEYS= DEMO="--kill-host --json", DEMO=--api
	@$(PY) -m local demo --source $(SOURCE) --events $(EVENTS) --keys $(KEYS) $(DEMO)

chaos: EVENTS := $(if $(filter command line environment,$(origin EVENTS)),$(EVENTS),10000)
chaos: $(SETUP) ## A fault campaign: SOURCE=sql EVENTS= FAULTS= SEED= CHAOS="--hosts 2"
	@$(PY) -m local chaos --source $(SOURCE) --events $(EVENTS) --faults $(FAULTS) $(if $(SEED),--seed $(SEED)) $(CHAOS)

fuzz: .venv/.installed-test ## Hypothesis over documents, settings and histories: FUZZ_EXAMPLES=
	@FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(PY) -m pytest tests/fuzz -q --show-capture=no --timeout 1200

mutants: .venv/.installed-mutants ## Mutation tests, hours: MUTANTS="--only relay/servicebus/key_sender.py" or MUTANTS="--sample 200 --seed 1"
	@$(PY) -m tests.mutants $(MUTANTS)

spec: .venv/.installed-spec ## Check the specifications, and that each needs its parts: FULL=1 for larger worlds
	@$(PY) -m verification.spec $(if $(FULL),--full)

simulate: .venv/.installed-test ## Run simulated universes, each by its seed: SEED= RUNS= SIMULATE="--kinds core --seconds 60"
	@$(PY) -m verification.simulation $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS)) $(SIMULATE)

bench: .venv/.installed-test ## Measure against the baselines, in a few minutes: FULL=1 BENCH="--only NAME"
	@$(PY) -m verification.bench $(if $(FULL),--full) $(BENCH)

up: $(SETUP) ## Start the local stack, until Ctrl-C: SOURCE=sql UP=--detach
	@$(PY) -m local up --source $(SOURCE) $(UP)

down: ## Stop the local stack
	@test ! -x $(PY) || $(PY) -m local down

# Compile all tests, once: the processes of pytest-xdist would each do it, at the same time.
.venv/.collected: .venv/.installed-test
	@set -o pipefail; $(PY) -m pytest --collect-only -q -m "not slow" | tail -n 1 && touch $@

test: .venv/.collected ## The quick tests, which everyone runs: TESTS="tests/unit -k name"
	@$(PYTEST) -m "not slow" --durations 20 $(TESTS)

test-slow: .venv/.installed-test-all ## What needs real time, campaigns, a browser, npm or a compiler: TESTS=
	@$(PYTEST) -m "$(SLOW)" --durations 20 $(TESTS)

test-all: test test-slow ## Every test

test-adverse: .venv/.collected ## The quick tests under load, elsewhere, in other orders, …: ADVERSE="quiet load"
	@$(PY) -m tests.adverse $(ADVERSE)

coverage: .venv/.collected ## The quick tests, and how much of relay/ they cover
	@$(COVERED) -m "not slow"
	@$(COVERAGE) 97

release-check: .venv/.installed-release ## Build, verify, install and try what a tag releases: RELEASE="--only outbox"
	@$(PY) -m tests.release $(RELEASE)

infra-check: .venv/.installed-test-all ## Only the tests of the Bicep files, with the Bicep compiler where one is found
	@$(PY) -m pytest tests/infra -q

lint: .venv/.installed-lint ## ruff: style and format
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

types: .venv/.installed-types ## mypy: strict for the relay, its operators' package and the libraries
	@$(PY) -m mypy

COMPILE = $(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-config \
	--no-emit-index-url --no-emit-find-links --no-emit-package outbox-relay-command-line \
	--custom-compile-command "make lock" $(LOCK)

lock: .venv/.installed-lock ## Resolve the locks of the app, the operators' commands and the emulators, with hashes: LOCK=--upgrade
	@$(COMPILE) --output-file requirements.lock requirements.txt
	@$(COMPILE) --output-file packages/operator/requirements.lock --extra console --constraint requirements.lock requirements.txt packages/operator/pyproject.toml
	@$(COMPILE) --output-file packages/emulators/requirements.lock --extra all --constraint packages/operator/requirements.lock packages/emulators/pyproject.toml

worker-test: ## Run the app on the platform's own worker (Python 3.13)
	@bash tests/worker/run.sh

sdk-suites: .venv/.installed-test ## Microsoft's own tests of the SDKs against the emulators, hours: SUITE=cosmos or servicebus
	@for suite in $(or $(SUITE),cosmos servicebus); do $(PY) -m packages.emulators.tests.sdk_suites $$suite || exit; done

languages: ## Install the npm packages that the tests of other languages use, if npm is installed
	@command -v npm >/dev/null || { echo "npm is not installed: tests that need it are skipped" >&2; exit 0; }; \
		cd packages/emulators/tests/languages && npm ci --ignore-scripts --no-audit --no-fund --silent || \
		echo "npm ci failed: tests that need its packages are skipped" >&2

blobs: ## Install Azurite, the Blob Storage of the local stack and of the tests, if npm is installed
	@command -v npm >/dev/null || { echo "npm is not installed: large events are off on the local stack" >&2; exit 0; }; \
		cd local/azurite && npm ci --ignore-scripts --no-audit --no-fund --omit=optional --silent || \
		echo "npm ci failed: large events are off on the local stack" >&2

docs: .venv/.installed-docs $(if $(findstring --draw,$(DOCS)),.venv/.installed-browser) ## Build the documentation as a site, and serve it: DOCS=--build
	@$(PY) -m docs.site $(DOCS)

clean: ## Remove everything that make has created
	@rm -rf .venv .venv-worker .local packages/emulators/tests/languages/{node_modules,java/build,go/*/build} local/azurite/node_modules samples/{node_consumer/node_modules,dotnet_consumer/{bin,obj}} .mypy_cache .pytest_cache .ruff_cache .hypothesis
