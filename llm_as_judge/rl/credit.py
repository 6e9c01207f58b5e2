"""Advantages of rollouts within their group (GRPO, arXiv 2402.03300, section 4.1; Dr. GRPO, arXiv 2503.20783, for
``scale="none"``).

An unscored reward is NaN: it is left out of the group's mean and gets advantage 0. So does a whole group without
contrast: fewer than two scored rollouts, or rewards equal up to a tolerance (continuous cost terms are never exactly
equal, and dividing by such a small deviation would amplify noise).

A group is left out if the judge abstained on one of its answers. Rules and tests accept right answers without the
judge, so the others are wrong more often. Leaving out only those would make the group's mean too high, and the
advantage of right answers too small.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from llm_as_judge.config.schema import ScaleRewards
from llm_as_judge.types import Group

#: Rewards that differ by at most this much count as equal.
TOLERANCE = 1e-3
EPS = 1e-4


@dataclass(frozen=True, slots=True)
class CreditedGroup:
    """A group with the reward (NaN = unscored) and the advantage of each rollout."""

    group: Group
    rewards: tuple[float, ...]  # all NaN if the group is left out; permuted in the control experiment
    advantages: tuple[float, ...]

    @property
    def left_out(self) -> bool:
        """Whether the judge abstained on one of its answers."""
        return any(r.verdict.abstained for r in self.group.rollouts)

    @property
    def contrast(self) -> bool:
        return any(self.advantages)


def credit(groups: Sequence[Group], scale: ScaleRewards, shuffle_seed: int | None = None) -> list[CreditedGroup]:
    """Compute rewards and advantages of a batch of groups. ``shuffle_seed`` first permutes the scored rewards."""
    rewards = [torch.tensor(_known(group), dtype=torch.float64) for group in groups]
    if shuffle_seed is not None:
        sizes = [len(row) for row in rewards]
        rewards = list(torch.split(_shuffled(torch.cat(rewards), shuffle_seed), sizes))
    return [
        CreditedGroup(group, tuple(earned.tolist()), tuple(worth.tolist()))
        for group, earned, worth in zip(groups, rewards, group_advantages(rewards, scale), strict=True)
    ]


def _known(group: Group) -> list[float]:
    """Return rewards, NaN = unscored; all NaN if the judge abstained."""
    rewards = [math.nan if r.reward.total is None else r.reward.total for r in group.rollouts]
    return [math.nan] * len(rewards) if any(r.verdict.abstained for r in group.rollouts) else rewards


def group_advantages(rewards: Sequence[Tensor], scale: ScaleRewards = "group") -> list[Tensor]:
    """Compute advantages [G] of each group's ``rewards`` [G]; NaN = unscored.

    ``scale`` (TRL's ``scale_rewards``) divides by the unbiased standard deviation of the group or the batch plus a
    small constant, or not at all.
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
