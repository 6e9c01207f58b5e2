"""Updates of the tiny policy and what they came to; also a program for each of several processes.

torchrun --nproc-per-node 2 tests/helpers/update_case.py OUT
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from helpers.tiny import random_completions, tiny_policy
from llm_as_judge.assembly.follow import _load
from llm_as_judge.assembly.policy import load_policy
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import TrainingConfig, WarmupConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.scoring import Sampling
from llm_as_judge.rl.credit import CreditedGroup
from llm_as_judge.rl.ranks import RankFailed, RankLost, Ranks, Team, join
from llm_as_judge.rl.sharding import shard
from llm_as_judge.rl.update import Updater, UpdateReport
from llm_as_judge.rl.warmup import WarmUp
from llm_as_judge.types import Completion, Execution, Group, Problem, Question, Reference, Reward, Rollout, Verdict

__all__ = ["batch", "several", "update"]

EMBEDDED = Path(__file__).parents[2] / "config/embedded.yaml"
VALUES = [1.0, -0.5, 0.0, -0.5, 0.3, 0.3, -0.6, 0.0, 2.0, -1.0, -1.0, 0.0]


def batch(policy: Policy, noise: float = 0.0, seed: int = 3, prompts: int = 3) -> list[Completion]:
    """Ragged completions as the policy's own engine would give them, up to ``noise`` in their log-probs."""
    bare = random_completions(prompts=prompts, group=4, seed=seed)
    draw = random.Random(1)
    with torch.no_grad():
        scores = policy.logprobs(bare, Sampling())
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
    """The report, and the gradient just before the last optimiser step."""
    updater = Updater(policy, TrainingConfig(**{"max_grad_norm": 1e9, "response_max_length": 12, **settings}))
    seen: list[list[torch.Tensor]] = []
    step = updater.optimizer.step

    def watch(*arguments: Any, **named: Any) -> Any:
        seen.append([p.grad.clone() for p in policy.trainable_parameters() if p.grad is not None])
        return step(*arguments, **named)

    updater.optimizer.step = watch  # type: ignore[method-assign]
    report = updater.update([credited(completions, order)], Sampling(), 0)
    return report, seen[-1]


def updater_of(ranks: Ranks, dtype: torch.dtype, **more: Any) -> Updater:
    """With settings of training in ``more``; the base is sharded where there are several ranks and they say so."""
    policy = fresh(gradient_checkpointing="shard_base" in more)
    policy.model.to(dtype)
    if more.get("shard_base") and ranks.size > 1:
        before = local_numbers(policy)
        shard(policy, "cpu", ranks.size)
        assert local_numbers(policy) < 0.7 * before
    if ranks.rank:  # it is rank 0's weights that all start from
        policy.trainable_parameters()[0].data.fill_(7.0)
    settings: dict[str, Any] = {"beta": 0.05, "loss_type": "grpo", "ppo_epochs": 2, "learning_rate": 1e-4, **more}
    return Updater(policy, TrainingConfig(response_max_length=12, **settings), ranks)


def fresh(**settings: Any) -> Policy:
    return tiny_policy(perturb=0.05, more={"initializer_range": 0.05}, **settings)


def local_numbers(policy: Policy) -> int:
    """Of the base's weights, those that this process holds."""
    held = (p.to_local() if isinstance(p, DTensor) else p for p in policy.base.parameters())
    return sum(p.numel() for p in held)


#: A base in parts, and updates cut so that the ranks have unlike numbers of passes.
SHARDED: dict[str, dict[str, Any]] = {
    "tree": {"shard_base": True, "micro_batch_tokens": 40},
    "padded": {"shard_base": True, "micro_batch_tokens": 60, "shared_prefix": False},
}


def several(ranks: Ranks, dtype: torch.dtype, **more: Any) -> dict[str, Any]:
    """Three updates, the last of a single prompt: all reports' figures, and the weights."""
    updater, reports = updater_of(ranks, dtype, **more), []
    if ranks.rank:
        updater.follow()
    else:
        updater.share_state()
        for step, prompts in enumerate((3, 3, 1)):
            completions = batch(fresh(), 0.3, seed=step, prompts=prompts)
            reports.append(updater.update([credited(completions)], Sampling(), step))
        saved_alone(updater.policy)
        ranks.tell(None)
    return {
        "weights": [p.detach() for p in updater.policy.trainable_parameters()],
        "figures": [[r.loss, r.kl, r.entropy, r.clip_fraction, r.grad_norm, r.corrected] for r in reports],
        "updates": updater.updates,
    }


def saved_alone(policy: Policy) -> None:
    """Rank 0 writes a checkpoint's adapter and reads one, while the others wait."""
    other = fresh()
    with tempfile.TemporaryDirectory() as folder:
        policy.save_adapter(Path(folder))
        other.load_adapter(Path(folder))
        policy.load_adapter(Path(folder))
    pairs = zip(policy.trainable_parameters(), other.trainable_parameters(), strict=True)
    assert all(torch.equal(own.float(), read.float()) for own, read in pairs)


def embedded(ranks: Ranks) -> dict[str, Any]:
    """The package's own policy in parts, as ``train`` loads it, and one update of it."""
    config = load_config(EMBEDDED, ["shard_base=true", "generation.engine=vllm", "learning_rate=1e-4"])
    policy = _load(config, ranks) if ranks.size > 1 else load_policy(config)
    updater = Updater(policy, config.training, ranks)
    if ranks.rank:
        updater.follow()
    else:
        updater.share_state()
        updater.update([credited(batch(load_policy(config)))], Sampling(), 0)
        ranks.tell(None)
    return {"weights": [p.detach() for p in policy.trainable_parameters()], "held": local_numbers(policy)}


def warmed(ranks: Ranks) -> dict[str, Any]:
    """Three steps of a warm-up, the last on a single reply, and a look: losses and weights."""
    policy = tiny_policy(rank=8)
    policy.model.to(torch.float64)
    if ranks.rank:
        policy.trainable_parameters()[0].data.fill_(7.0)
    loop = WarmUp(policy, WarmupConfig(sft_steps=3, sft_learning_rate=1e-2), TrainingConfig(), ranks)
    replies = random_completions(prompts=3, group=3, seed=5)
    losses: list[float] = []
    if ranks.rank:
        loop.follow()
    else:
        loop.share_state()
        losses = [loop.step(replies), loop.step(replies[:5]), loop.step(replies[:1]), loop.loss(replies)]
        ranks.tell(None)
    return {"weights": [p.detach() for p in policy.trainable_parameters()], "losses": losses, "steps": loop.steps}


def failing(ranks: Ranks, how: str) -> str:
    """What this rank says where rank 1 runs out of memory in the update (in a layer of a base in parts, which ends it),
    or comes to other weights.
    """
    updater = updater_of(ranks, torch.float32, **(SHARDED["padded"] if how == "tied" else {}))
    try:
        if not ranks.rank:
            updater.share_state()
            updater.update([credited(batch(fresh()))], Sampling(), 0)
            return "nothing"
        if how == "astray":
            updater.optimizer.register_step_post_hook(astray)
        elif how == "tied":
            updater.policy.base.get_decoder().layers[1].register_forward_pre_hook(out_of_memory)
        else:
            updater.policy.micro_batches = out_of_memory  # type: ignore[method-assign]
        updater.follow()
    except (MemoryError, ConfigError, RankFailed, RankLost) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        if how != "tied":
            ranks.tell(None) if not ranks.rank else ranks.hear()
    return "nothing"


def out_of_memory(*arguments: Any) -> Any:
    raise MemoryError("no room")


def astray(optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
    with torch.no_grad():
        optimizer.param_groups[0]["params"][0].view(-1)[0].mul_(1 + 1e-6)


def main(out: str) -> None:
    with join() as ranks:
        assert isinstance(ranks, Team)
        found = {
            "float32": several(ranks, torch.float32),
            "float64": several(ranks, torch.float64),
            **{name: several(ranks, torch.float32, **more) for name, more in SHARDED.items()},
            "embedded": embedded(ranks),
            "warm-up": warmed(ranks),
            "memory": failing(ranks, "memory"),
            "astray": failing(ranks, "astray"),
            "tied": failing(ranks, "tied"),
        }
        torch.save(found, f"{out}.{ranks.rank}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
