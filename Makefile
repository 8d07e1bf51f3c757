# Set-up, the main job and the tests, each with one command. `make ARGS="..."` passes arguments on.

SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
ACCELERATOR ?= cpu
ARGS ?=

# Idle OpenMP threads that spin take the cores from the other processes of a run.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: help setup quickstart test test-long check lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

setup: ## Virtual environment, Docker engine and sandbox image; quick when they are there
	@bash scripts/setup.sh

quickstart: setup ## Train the embedded tiny policy on maths and code: make quickstart ARGS="seed=1"
	@$(BIN)/verigrad train configs/quickstart.yaml $(ARGS)

test: setup ## Run the tests: make test ARGS="tests/unit -k verdict"
	@$(BIN)/python -m pytest $(ARGS)

test-long: setup ## Run the long ones: soaks, fault injections, score tables
	@$(BIN)/python -m pytest -m long $(ARGS)

check: ## Lint, format, types and import layers, without changing a file
	@bash scripts/setup.sh --packages-only
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports

lock: ## Resolve the pinned lists in requirements/ anew
	@bash scripts/lock.sh

clean: ## Remove what is built here: caches and the virtual environment; runs and models stay
	rm -rf .venv .cache build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './runs/*' -prune -exec rm -rf {} +
