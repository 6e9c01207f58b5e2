"""One update of the tiny policy and the gradient it came to; also a program for one of several processes.

python tests/rl/update_case.py RANK WORLD RENDEZVOUS_FILE OUT
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any

import torch
from tiny import random_completions, tiny_policy

from llm_as_judge.config.schema import TrainingConfig
from llm_as_judge.logprobs.scoring import Sampling
from llm_as_judge.rl.credit import CreditedGroup
from llm_as_judge.rl.policy import Policy
from llm_as_judge.rl.update import Updater, UpdateReport
from llm_as_judge.types import Completion, Execution, Group, Problem, Question, Reference, Reward, Rollout, Verdict

__all__ = ["batch", "update"]


def batch(policy: Policy, noise: float = 0.0) -> list[Completion]:
    """Ragged completions as the policy's own engine would give them, up to ``noise`` in their log-probs."""
    bare = random_completions(prompts=3, group=4, seed=3)
    draw = random.Random(1)
    with torch.no_grad():
        scores = policy.logprobs(bare, Sampling())
    rows = [r[m].tolist() for r, m in zip(scores.logprobs, scores.mask, strict=True)]
    return [
        Completion("", c.prompt_ids, c.token_ids, tuple(x + draw.gauss(0, noise) for x in row), "stop")
        for c, row in zip(bare, rows, strict=True)
    ]


def update(
    policy: Policy, completions: Sequence[Completion], order: Sequence[int] | None = None, **settings: Any
) -> tuple[UpdateReport, list[torch.Tensor]]:
    """The report, and the gradient just before the last optimiser step."""
    values = [1.0, -0.5, 0.0, -0.5, 0.3, 0.3, -0.6, 0.0, 2.0, -1.0, -1.0, 0.0]
    order = list(range(len(completions))) if order is None else order
    problem = Problem(Question("p", "text", "math"), Reference(("1",)))
    rollouts = [
        Rollout(problem, completions[i], "", Execution("finished", "1"), Verdict(True, "rules"), Reward(values[i]))
        for i in order
    ]
    earned = tuple(values[i] for i in order)
    group = CreditedGroup(Group(problem, rollouts), earned, earned)
    updater = Updater(policy, TrainingConfig(**{"max_grad_norm": 1e9, "response_max_length": 12, **settings}))
    seen: list[list[torch.Tensor]] = []
    step = updater.optimizer.step

    def watch(*arguments: Any, **named: Any) -> Any:
        seen.append([p.grad.clone() for p in policy.trainable_parameters() if p.grad is not None])
        return step(*arguments, **named)

    updater.optimizer.step = watch  # type: ignore[method-assign]
    report = updater.update([group], Sampling(), 0)
    return report, seen[-1]


def main() -> None:
    rank, world, rendezvous, out = sys.argv[1:]
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=int(rank), world_size=int(world)
    )
    policy = tiny_policy(perturb=0.05, more={"initializer_range": 0.05})
    report, gradient = update(policy, batch(policy, 0.3), beta=0.05, loss_type="grpo", ppo_epochs=2)
    weights = [p.detach() for p in policy.trainable_parameters()]
    torch.save({"loss": report.loss, "kl": report.kl, "gradient": gradient, "weights": weights}, f"{out}.{rank}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
