# Everything runs from .venv/ in this directory. The first two targets are what most people want.
.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-night test-unit test-runs lanes lab-test lint docs support bench clean packages vm-tools engine venv
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

LAB ?= lab
BIN := .venv/bin
STATE := $(or $(XDG_STATE_HOME),$(HOME)/.local/state)/clusterctl
INVENTORY := $(STATE)/labs/$(LAB)/inventory.ini
# Without the caller's ANSIBLE_* settings, which could change what a test proves; with our programs first. And with compiled
# Python kept: where a caller has that switched off, each process of pytest would compile all tests anew.
RUN := env -u ANSIBLE_CONFIG -u ANSIBLE_HOST_KEY_CHECKING -u PYTHONDONTWRITEBYTECODE PATH="$(CURDIR)/$(BIN):$$PATH"
# The lanes of 'make test-all', each by name; tests/lanes.py says what they are.
LANES := machines site training repair slurm containers molecule virtual slow

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.runtime engine ## Make a lab, provision it, prove that it works (root)
	@$(RUN) clusterctl lab up $(LAB)
	@$(RUN) clusterctl provision $(INVENTORY)
	@verdict=0; $(RUN) clusterctl verify $(INVENTORY) || verdict=$$?; \
	$(RUN) clusterctl status $(INVENTORY) || true; \
	printf '\nada, an ordinary user, runs a job on both nodes: srun --nodes=2 --gres=gpu:1 hostname\n'; \
	$(RUN) clusterctl lab ssh --lab $(LAB) ada@head srun --nodes=2 --gres=gpu:1 hostname || verdict=$$?; \
	printf '\nNext:\n'; \
	printf '  %-63s # %s\n' '$(BIN)/clusterctl plan' 'what would change: nothing' \
	  '$(BIN)/clusterctl provision && $(BIN)/clusterctl verify' 'again, in a fraction of the time' \
	  '$(BIN)/clusterctl lab ssh --lab $(LAB) ada@head' 'log in as she does: sbatch, srun, salloc' \
	  '$(BIN)/clusterctl lab down $(LAB)' 'remove the lab; caches stay'; \
	printf '\nThe proof as a page, to hand to a colleague:\n'; \
	$(RUN) clusterctl report --inventory $(INVENTORY) || true; \
	exit $$verdict

test: .venv/.dev engine ## Run linters, unit tests, commands from end to end and one lab (root; 12 minutes)
	@$(RUN) python tests/lanes.py gate

test-all: .venv/.dev engine vm-tools ## Run 'make test' and each lane after it: what a change of that part is proven by (root; an hour)
	@$(RUN) python tests/lanes.py all

test-night: .venv/.dev engine vm-tools ## Run what is rare, long or random (root; hours)
	@$(RUN) python tests/lanes.py night

test-unit: .venv/.dev ## Run the tests that need no machine
	@$(RUN) python tests/lanes.py unit

test-runs: .venv/.dev ## Render what roles write, run commands through the real Ansible on this computer
	@$(RUN) python tests/lanes.py runs

$(LANES:%=test-%): test-%: .venv/.dev engine ## Run one lane of 'make test-all': %
	@$(if $(filter virtual,$*),scripts/packages vm)
	@$(RUN) python tests/lanes.py $*

lanes: .venv/.dev ## Print which lanes the difference to the main branch (or to BASE) touches
	@$(RUN) python tests/lanes.py touched

lab-test: .venv/.dev engine ## Run one test on a lab that is kept: make lab-test T=tests/core/test_4_users.py::test_...
	@$(RUN) python tests/lanes.py one "$(T)"

lint: .venv/.dev ## Run the linters
	@failed=0; run() { echo "$$1"; $(RUN) "$$@" || failed=1; }; \
	run ruff check .; run ruff format --check .; run mypy; \
	run mypy --config-file .config/mypy-plugins.ini plugins roles playbooks; \
	run lint-imports --no-logo; run yamllint --strict .; run ansible-lint --offline -q; \
	run scripts/prose; run sphinx-build -W --keep-going -q docs build/docs; \
	run shellcheck --severity=warning $$(git grep -lE '^#!/bin/(ba)?sh' -- scripts roles .ci ':!*.j2'); exit $$failed

docs: .venv/.dev ## Build the documentation, and print where it is
	@$(RUN) sphinx-build -W --keep-going -q docs build/docs
	@echo "$(CURDIR)/build/docs/index.html"

vm-tools: ## Install what 'clusterctl lab up --kind vm' needs from the distribution (root)
	@scripts/packages vm

support: .venv/.dev ## Write the support matrix from what tests have run here
	@$(RUN) python tests/support/support.py

bench: .venv/.dev ## Measure speed, as ratios from one run, with made-up machines, and with the lab when it is up
	@if [ -f "$(INVENTORY)" ]; then $(RUN) PYTHONPATH=tests python -m bench --inventory "$(INVENTORY)"; \
	else $(RUN) PYTHONPATH=tests python -m bench; fi

clean: ## Remove the lab and what was made in this directory; caches stay
	@if [ -x $(BIN)/clusterctl ] && docker info >/dev/null 2>&1; then $(RUN) clusterctl lab down $(LAB); fi
	@rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .ansible .cache

packages: ## Install what is needed from the distribution (root)
	@scripts/packages

engine: packages ## Start Docker's engine if none answers (root)
	@scripts/engine

venv: .venv/.dev ## Make the virtual environment, with what the tests need

.venv/bin/python:
	@scripts/packages
	@for python in python3 python3.13 python3.12 python3.11; do \
	  if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    "$$python" -m venv .venv; exit; fi; done; \
	echo "there is no Python 3.11 or newer; install python3-venv" >&2; exit 2

# Stamps: pip is asked again only when the dependencies have changed.
.venv/.runtime: pyproject.toml | .venv/bin/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs]'
	@touch $@ .venv/.runtime
