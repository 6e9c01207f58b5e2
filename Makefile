# Targets of everyday work; `make help` lists them. ARGS passes on: make train ARGS="--set seed=1"
# Where PyPI's torch would bring CUDA unwanted: make setup TORCH_INDEX=https://download.pytorch.org/whl/cpu
.DEFAULT_GOAL := help
.PHONY: help setup train pretrain test check bench

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
STAMP := .venv/.installed
# -qq: pip is told to warn of mirrors it does not need; errors are still shown.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 12

setup: $(STAMP)  ## create .venv with everything needed, once

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 10) or sys.exit(f"Python 3.10 or later is needed, $(PYTHON) is {v[0]}.{v[1]}")'
	@echo "setup 1/3: virtual environment in .venv"
	@$(PYTHON) -m venv .venv
	@echo "setup 2/3: torch"
	@$(PIP) torch $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	@echo "setup 3/3: the package, its other dependencies and the test tools"
	@$(PIP) -e '.[test,dev]'
	@touch $@

train: setup  ## train the nano policy by GRPO, on any machine
	@$(BIN)/llm-as-judge train --config config/embedded.yaml $(ARGS)

pretrain: setup  ## make the nano executor and policy anew (hours)
	@sh scripts/pretrain.sh $(BIN)/python $(ARGS)

test: setup  ## run the tests
	@$(BIN)/python -m pytest -q $(ARGS)

check: setup  ## lint, formatting, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: setup  ## measure our parts against their peers, in one run each
	@for file in benchmarks/*.py; do case $$file in */measure.py) ;; *) OMP_NUM_THREADS=1 $(BIN)/python $$file $(ARGS) || exit 1;; esac; done
