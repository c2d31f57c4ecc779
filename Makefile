# Everything runs from .venv/ in this directory. The first two targets are what most people want.
.DEFAULT_GOAL := help
.PHONY: help demo test test-unit test-roles test-machines test-lab test-molecule test-virtual test-vm test-driver test-faults test-jobs lint support bench clean packages vm-tools engine venv
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

# Of tests/lab what needs no provisioned lab, so that it can run beside what does.
MACHINES := $(addprefix tests/lab/test_,access.py ddp_proof.py lab_machines.py refusals.py training_ends.py training_resumes.py)
LONGEST := $(addprefix tests/lab/test_,mutations.py provision.py)
ROUTINE := not faults and not driver and not jobs
SCENARIOS := $(notdir $(patsubst %/,%,$(dir $(wildcard molecule/*/molecule.yml))))
# This one builds Slurm's image for another registry, packages and all, as every site does once.
DAILY_SCENARIOS := $(filter-out slurm_image,$(SCENARIOS))
# $(call scenarios,NAMES,OPTIONS): run scenarios of Molecule one after the other, and note which rows they prove.
# By the glob Molecule looks for this one alone: by its own it calls the lack of a scenario "default" critical.
scenarios = failed=; for scenario in $(1); do \
	  $(RUN) MOLECULE_GLOB="molecule/$$scenario/molecule.yml" scripts/timed "molecule $$scenario" molecule $(2) test -s "$$scenario" --no-command-borders \
	    || failed="$$failed $$scenario"; \
	done; [ -z "$$failed" ] || { echo "FAILED scenarios:$$failed"; exit 1; }; \
	$(RUN) python tests/support/support.py molecule $(1)

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
	exit $$verdict

test: .venv/.dev engine vm-tools ## Run every linter and test but those of reboots, RDMA, drivers, all templates and faults (root; 40 minutes)
	@# They wait for machines a third of their time, so they run side by side; each prints when it has ended.
	@# What failed comes once more at the end, where it would otherwise be thousands of lines above.
	@mkdir -p .cache && rm -f .cache/durations
	@# The longest first: the engine runs already, so that nothing is begun in the place of what would wait for it. The
	@# virtual node later: where caches are empty, the lab has built the images by then that its disk is to hold.
	@failed=0; $(MAKE) --jobs=3 --keep-going --output-sync=target --old-file=engine --old-file=vm-tools \
	  test-lab test-molecule test-roles test-virtual test-machines test-unit lint 2>&1 | tee .cache/test.log || failed=$$?; \
	printf '\nMinutes:\n'; scripts/timed; \
	[ $$failed -eq 0 ] || { \
	  printf '\nFailed (all that was printed is in .cache/test.log):\n'; \
	  grep -aE '^(E  |FAILED |ERROR )|fatal: \[|failed=[^0]*[1-9]|\*\*\* ' .cache/test.log | tail -n 40; exit 2; }

test-unit: .venv/.dev ## Run the tests that need no machine
	@# Many of them wait, so more run at a time than there are processors.
	@$(RUN) scripts/timed unit pytest -q -n 4 --durations=5 tests/unit

test-roles: .venv/.dev ## Render what roles write, run commands through the real Ansible on this computer
	@# A file's tests read what one run of Ansible has left: one process has them all.
	@$(RUN) scripts/timed 'roles and runs' pytest -q -n 3 --dist loadfile -m "$(ROUTINE)" --durations=5 tests/roles tests/runs

test-machines: .venv/.dev engine ## Run the tests of simulated machines on which nothing is provisioned (root)
	@$(RUN) scripts/timed machines pytest -q -m "$(ROUTINE)" --durations=10 $(MACHINES)

test-lab: .venv/.dev engine ## Run the tests that need a provisioned lab (root)
	@# On two labs at once: provisions and jobs wait half of their time. In this order, so that none waits for a long file.
	@$(RUN) scripts/timed lab pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "$(ROUTINE)" --durations=40 $(LONGEST) \
	  $(filter-out $(MACHINES) $(LONGEST),$(wildcard tests/lab/test_*.py))

test-molecule: .venv/.dev engine ## Run the Molecule scenarios of roles that need a made-up machine, but what they break (root)
	@$(call scenarios,$(DAILY_SCENARIOS),-c .config/molecule/config.yml -c .config/molecule/daily.yml)

test-virtual: .venv/.dev engine vm-tools ## Run jobs on a virtual node, whose kernel keeps them apart (root)
	@# First to the processors: what an emulated one has to wait for takes it ten times as long.
	@$(RUN) nice -n -10 scripts/timed 'virtual node' pytest -q -m "not faults" --durations=5 tests/vm/test_vm_isolation.py tests/vm/test_vm_jobs.py

test-vm: .venv/.dev engine vm-tools ## Run the tests that need virtual machines (root; an hour where they are emulated)
	@$(RUN) scripts/timed 'virtual machines' pytest -q -m "not faults" tests/vm

vm-tools: ## Install what 'clusterctl lab up --kind vm' needs from the distribution (root)
	@scripts/packages vm

test-driver: .venv/.dev engine ## Install Debian's own NVIDIA driver on a simulated machine and build its module (root)
	@$(RUN) scripts/timed driver pytest -q -m driver tests/lab

test-jobs: .venv/.dev engine ## Run every template of users' jobs, and change a site's images and settings (root; 45 minutes)
	@$(RUN) scripts/timed jobs pytest -q -m "jobs and not faults" tests/lab

test-faults: .venv/.dev engine ## Kill runs at random points, try what is rare and takes minutes, and all variants of the rest (root; hours)
	@failed=0; $(RUN) scripts/timed faults pytest -q -m faults tests/lab tests/roles tests/runs || failed=1; \
	($(call scenarios,$(SCENARIOS))) || failed=1; exit $$failed

lint: .venv/.dev ## Run the linters
	@$(RUN) scripts/timed ruff ruff check .
	@$(RUN) scripts/timed 'ruff format' ruff format --check .
	@$(RUN) scripts/timed mypy mypy
	@$(RUN) scripts/timed 'mypy of plugins' mypy --config-file .config/mypy-plugins.ini plugins roles playbooks
	@$(RUN) scripts/timed lint-imports lint-imports --no-logo
	@$(RUN) scripts/timed yamllint yamllint --strict .
	@$(RUN) scripts/timed ansible-lint ansible-lint --offline -q
	@scripts/timed shellcheck shellcheck --severity=warning $$(git grep -lE '^#!/bin/(ba)?sh' -- scripts roles .ci ':!*.j2')

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
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ .venv/.runtime
