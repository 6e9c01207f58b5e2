"""Updates of the tiny policy and their results; also a program for torchrun.

torchrun --nproc-per-node 2 tests/helpers/update_case.py OUT [cpu|cuda]
"""

import os
import random
import sys
from collections.abc import Sequence
from typing import Any

import torch

from helpers.tiny import logprobs_of, random_completions, tiny_policy
from llm_as_judge.config.schema import TrainingConfig, WarmupConfig
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.rl.credit import CreditedGroup
from llm_as_judge.rl.ranks import RankFailed, Ranks, Team, join
from llm_as_judge.rl.update import Batch, Updater, UpdateReport
from llm_as_judge.rl.warmup import WarmUp
from llm_as_judge.types import Completion, Execution, Group, Problem, Question, Reference, Reward, Rollout, Verdict

PRECISIONS = {"cpu": ("float32", "float64"), "cuda": ("float32",)}
VALUES = [1.0, -0.5, 0.0, -0.5, 0.3, 0.3, -0.6, 0.0, 2.0, -1.0, -1.0, 0.0]


def batch(policy: Policy, noise: float = 0.0, seed: int = 3, prompts: int = 3) -> list[Completion]:
    """Ragged completions with the policy's log-probs plus ``noise``."""
    bare = random_completions(prompts=prompts, group=4, seed=seed)
    draw = random.Random(1)
    with torch.no_grad():
        scores = logprobs_of(policy, bare, Sampling())
    rows = [r[m].tolist() for r, m in zip(scores.logprobs, scores.mask, strict=True)]
    return [
        Completion("", c.prompt_ids, c.token_ids, tuple(x + draw.gauss(0, noise) for x in row), "stop")
        for c, row in zip(bare, rows, strict=True)
    ]


def credited(completions: Sequence[Completion], order: Sequence[int] | None = None) -> CreditedGroup:
    order = list(range(len(completions))) if order is None else order
    problem = Problem(Question("p", "text", "math"), Reference(("1",)))
    rollouts = [
        Rollout(problem, completions[i], "", Execution("finished", "1"), Verdict(True, "rules"), Reward(VALUES[i]))
        for i in order
    ]
    earned = tuple(VALUES[i] for i in order)
    return CreditedGroup(Group(problem, rollouts), earned, earned)


def update(
    policy: Policy, completions: Sequence[Completion], order: Sequence[int] | None = None, **settings: Any
) -> tuple[UpdateReport, list[torch.Tensor]]:
    """The report, and the gradient before the last optimiser step."""
    updater = Updater(policy, TrainingConfig(**{"max_grad_norm": 1e9, "response_max_length": 12, **settings}))
    seen: list[list[torch.Tensor]] = []
    step = updater.optimizer.step

    def watch(*arguments: Any, **named: Any) -> Any:
        seen.append([p.grad.clone() for p in policy.trainable_parameters if p.grad is not None])
        return step(*arguments, **named)

    updater.optimizer.step = watch  # type: ignore[method-assign]
    report = updater.update(Batch.of([credited(completions, order)], 0, updater.config), Sampling(), 0)
    return report, seen[-1]


def updater_of(ranks: Ranks, dtype: torch.dtype, device: str = "cpu") -> Updater:
    policy = fresh(device=device)
    policy.model.to(dtype)
    if ranks.rank:  # all ranks start from the weights of rank 0
        policy.trainable_parameters[0].data.fill_(7.0)
    config = TrainingConfig(response_max_length=12, beta=0.05, loss_type="grpo", ppo_epochs=2, learning_rate=1e-4)
    return Updater(policy, config, ranks)


def fresh(**settings: Any) -> Policy:
    return tiny_policy(perturb=0.05, more={"initializer_range": 0.05, "head_dim": 32}, **settings)


def several(ranks: Ranks, dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """Figures of three updates, the last with a single prompt, and the weights."""
    updater, reports, sizes, add_up = updater_of(ranks, dtype, device), [], list[int](), ranks.add_up

    def counted(values: torch.Tensor) -> torch.Tensor:
        sizes.append(values.numel())
        return add_up(values)

    ranks.add_up = counted  # type: ignore[method-assign]
    if ranks.rank:
        updater.follow()
    else:
        updater.optimizer.share()
        for step, prompts in enumerate((3, 3, 1)):
            completions = batch(fresh(), 0.3, seed=step, prompts=prompts)
            rows = Batch.of([credited(completions)], step, updater.config)
            reports.append(updater.update(rows, Sampling(), step))
        ranks.tell(None)
    ranks.add_up = add_up  # type: ignore[method-assign]
    return {
        "sums": sizes,
        "weights": [p.detach().cpu() for p in updater.policy.trainable_parameters],
        "figures": [[r.loss, r.kl, r.entropy, r.clip_fraction, r.grad_norm, r.corrected] for r in reports],
        "updates": updater.optimizer.steps,
    }


def warmed(ranks: Ranks, device: str = "cpu") -> dict[str, Any]:
    """Losses and weights of three warm-up steps, the last on a single reply."""
    # FlexAttention has neither float64 nor heads of 8.
    policy = tiny_policy(rank=8, more={} if device == "cpu" else {"head_dim": 32}, device=device)
    policy.model.to(torch.float64 if device == "cpu" else torch.float32)
    if ranks.rank:
        policy.trainable_parameters[0].data.fill_(7.0)
    learner = Updater(policy, TrainingConfig(), ranks)
    loop = WarmUp(learner, WarmupConfig(sft_steps=3, sft_learning_rate=1e-2), TrainingConfig())
    replies = random_completions(prompts=3, group=3, seed=5)
    losses: list[float] = []
    if ranks.rank:
        learner.follow()
    else:
        learner.optimizer.share()
        for learned in (replies, replies[:5], replies[:1]):
            losses.append(loop.loss(replies))
            loop.step(learned)
        losses.append(loop.loss(replies))
        ranks.tell(None)
    return {"weights": [p.detach().cpu() for p in policy.trainable_parameters], "losses": losses, "steps": loop.steps}


def failing(ranks: Ranks, how: str, device: str) -> str:
    """The error on this rank if rank 1 runs out of memory in an update, or computes other weights."""
    updater = updater_of(ranks, torch.float32, device)
    try:
        if not ranks.rank:
            updater.optimizer.share()
            updater.update(Batch.of([credited(batch(fresh()))], 0, updater.config), Sampling(), 0)
            return "none"
        if how == "other weights":
            updater.optimizer.register_step_post_hook(astray)
        else:
            updater.policy.micro_batches = out_of_memory  # type: ignore[method-assign]
        updater.follow()
    except (MemoryError, RankFailed) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        ranks.tell(None) if not ranks.rank else ranks.hear()
    return "none"


def out_of_memory(*arguments: Any) -> Any:
    raise MemoryError("no room")


def astray(optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
    with torch.no_grad():
        optimizer.param_groups[0]["params"][0].view(-1)[0].mul_(1 + 1e-6)


def main(out: str, kind: str = "cpu") -> None:
    device = f"cuda:{os.environ['LOCAL_RANK']}" if kind == "cuda" else "cpu"
    with join() as ranks:
        assert isinstance(ranks, Team)
        found = {
            **{name: several(ranks, getattr(torch, name), device) for name in PRECISIONS[kind]},
            "warm-up": warmed(ranks, device),
            "memory": failing(ranks, "memory", device),
            "other weights": failing(ranks, "other weights", device),
        }
        torch.save(found, f"{out}.{ranks.rank}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
