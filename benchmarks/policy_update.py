"""Forward and backward pass of one GRPO step on the nano policy: every shared prefix once against padded rows.

Padded rows of prompt and completion are what TRL's ``GRPOTrainer`` forwards. Same weights, same 64 workflows.

    python benchmarks/policy_update.py [--rounds 3] [--json]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from random import Random

import torch
from measure import Claim, cpu_seconds, report

from llm_as_judge.config import load_config
from llm_as_judge.rl.policy import Policy, Sampling
from llm_as_judge.types import Completion
from llm_as_judge.workbench import load_policy, training_sampler
from llm_as_judge.workflow.plans import PLANS, workflow
from llm_as_judge.workflow.prompt import build_prompt, load_guidance

ROOT = Path(__file__).parents[1]


def batch(policy: Policy, problems: int, group: int) -> list[list[Completion]]:
    """``group`` workflows for each of ``problems`` problems of the embedded run."""
    config, r = load_config(ROOT / "config/embedded.yaml"), Random(0)
    guidance = load_guidance(ROOT / "config/guidance.yaml")
    groups = []
    for problem in training_sampler(config).sample(problems):
        question = problem.question
        prompt = policy.encode(build_prompt(question, operators=config.workflow.operators, guidance=guidance))
        members = []
        for plan in r.choices(list(PLANS.values()), k=group):
            text = workflow(plan, question.domain)
            ids = policy.tokenizer(text, add_special_tokens=False).input_ids
            members.append(Completion(text, tuple(prompt), tuple(ids), (0.0,) * len(ids), "stop"))
        groups.append(members)
    return groups


def scores(policy: Policy, groups: list[list[Completion]], shared_prefix: bool) -> list[torch.Tensor]:
    """Log-probabilities [B, T] of every group, after the gradient of their sum was taken."""
    found = []
    for members in groups:
        scored = policy.logprobs(members, Sampling(), shared_prefix=shared_prefix)
        kept = torch.where(scored.mask, scored.logprobs, 0.0)
        kept.sum().backward()  # type: ignore[no-untyped-call]
        found.append(kept.detach())
    policy.model.zero_grad(set_to_none=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    policy = load_policy(load_config(ROOT / "config/embedded.yaml"))
    groups = batch(policy, problems=8, group=8)
    pairs = zip(scores(policy, groups, True), scores(policy, groups, False), strict=True)
    difference = max(float((a - b).abs().max()) for a, b in pairs)
    spent = cpu_seconds(
        {
            "padded rows": lambda: scores(policy, groups, False),
            "every shared prefix once": lambda: scores(policy, groups, True),
        },
        options.rounds,
    )
    rows = {name: f"{seconds:.2f} CPU seconds" for name, seconds in spent.items()}
    rows["largest difference of a log-probability"] = f"{difference:.1e}"
    claims = {"speedup": Claim(spent["padded rows"] / spent["every shared prefix once"], 2.0)}
    report("forward and backward of 64 workflows, nano policy", rows, claims, options.json)


if __name__ == "__main__":
    main()
