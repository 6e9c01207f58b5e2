"""What every rollout is worth against its group (GRPO, arXiv 2402.03300, section 4.1; Dr. GRPO, arXiv 2503.20783,
for ``scale="none"``).

An unscored reward is NaN: it takes no part in the group's mean and gets advantage 0. A group without contrast (fewer
than two scored rollouts, or all rewards equal up to a tolerance) gets advantage 0 as well, for rewards with continuous
cost terms never tie exactly and dividing by their spread would make noise a signal.

A group in which the judge abstained on an answer is left out as a whole. Rules and tests accept right answers without
the judge, so that what it leaves open is wrong more often than what is scored: against the mean of the others right
answers would earn too little and wrong ones lose too much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from llm_as_judge.config.schema import ScaleRewards
from llm_as_judge.types import Group

#: Rewards that differ by no more than this are alike.
TOLERANCE = 1e-3
EPS = 1e-4


@dataclass(frozen=True, slots=True)
class CreditedGroup:
    """A group with what each of its rollouts earned, NaN = unscored, and what that is worth in the update."""

    group: Group
    rewards: tuple[float, ...]  # one a rollout, all NaN of a group left out; in the control experiment another's
    advantages: tuple[float, ...]  # 0 where there is nothing to learn

    @property
    def contrast(self) -> bool:
        """Whether the group teaches something."""
        return any(self.advantages)

    @property
    def unscored(self) -> int:
        return sum(r.reward.total is None for r in self.group.rollouts)

    @property
    def left_out(self) -> bool:
        """The judge abstained on one of its answers."""
        return any(r.verdict.abstained for r in self.group.rollouts)


def credit(groups: Sequence[Group], scale: ScaleRewards, shuffle_seed: int | None = None) -> list[CreditedGroup]:
    """Credits ``groups``, a batch; with ``shuffle_seed`` the scored rewards are permuted over the batch first."""
    rewards = [torch.tensor(_known(group), dtype=torch.float64) for group in groups]
    if shuffle_seed is not None:
        sizes = [len(row) for row in rewards]
        rewards = list(torch.split(_shuffled(torch.cat(rewards), shuffle_seed), sizes))
    advantages = group_advantages(rewards, scale)
    return [
        CreditedGroup(group, tuple(earned.tolist()), tuple(worth.tolist()))
        for group, earned, worth in zip(groups, rewards, advantages, strict=True)
    ]


def _known(group: Group) -> list[float]:
    """The rewards, NaN = unscored, or none of them where the judge abstained."""
    rewards = [math.nan if r.reward.total is None else r.reward.total for r in group.rollouts]
    return [math.nan] * len(rewards) if any(r.verdict.abstained for r in group.rollouts) else rewards


def group_advantages(rewards: Sequence[Tensor], scale: ScaleRewards = "group") -> list[Tensor]:
    """Advantages [G] of each group's ``rewards`` [G], NaN = unscored.

    ``scale`` divides by the group's or the batch's unbiased standard deviation plus a small number, as TRL's
    ``scale_rewards`` does, or by nothing.
    """
    scored = [row[~torch.isnan(row)] for row in rewards]
    batch = torch.cat(scored) if scored else torch.zeros(0)
    advantages = []
    for row, known in zip(rewards, scored, strict=True):
        worth = torch.zeros_like(row)
        if known.numel() > 1 and float(known.max() - known.min()) > TOLERANCE:
            centred = known - known.mean()
            if scale == "group":
                centred = centred / (known.std() + EPS)
            elif scale == "batch":
                centred = centred / (batch.std() + EPS)
            worth[~torch.isnan(row)] = centred
        advantages.append(worth)
    return advantages


def _shuffled(rewards: Tensor, seed: int) -> Tensor:
    scored = torch.nonzero(~torch.isnan(rewards))[:, 0]
    order = torch.randperm(len(scored), generator=torch.Generator().manual_seed(seed))
    shuffled = rewards.clone()
    shuffled[scored] = rewards[scored[order]]
    return shuffled
