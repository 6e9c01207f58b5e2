"""Group-relative advantages (GRPO, arXiv 2402.03300, section 4.1; Dr. GRPO, arXiv 2503.20783, for
``scale="none"``).

Pure tensor functions. An unscored reward is NaN: it takes no part in the group's mean and gets advantage 0. A
group without contrast (one scored rollout, or all rewards equal up to a tolerance) gets advantage 0 as well,
for rewards with continuous cost terms never tie exactly and dividing by their spread would make noise a
signal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Scale = Literal["group", "batch", "none"]


@dataclass(frozen=True, slots=True)
class Advantages:
    """``values`` [N] float64-safe copies of the rewards' dtype, 0 where there is nothing to learn."""

    values: Tensor
    groups: int
    zero_variance_groups: int  # two or more scored rollouts, no contrast
    small_groups: int  # fewer than two scored rollouts
    unscored: int  # rollouts
    with_contrast: frozenset[int]  # labels of the groups that teach something

    @property
    def skipped_groups(self) -> int:
        return self.zero_variance_groups + self.small_groups


def group_advantages(
    rewards: Tensor,
    group_index: Tensor,
    scale: Scale = "group",
    eps: float = 1e-4,
    tolerance: float = 1e-3,
) -> Advantages:
    """Advantage of every rollout against its group.

    ``rewards`` [N], NaN = unscored; ``group_index`` [N] any integer labels. ``scale`` divides by the group's
    or the batch's unbiased standard deviation plus ``eps``, as TRL's ``scale_rewards`` does, or by nothing. A
    group whose rewards differ by no more than ``tolerance`` is skipped.
    """
    if scale not in ("group", "batch", "none"):
        raise ValueError(f'scale must be "group", "batch" or "none", got {scale!r}')
    if rewards.shape != group_index.shape or rewards.dim() != 1:
        raise ValueError(f"rewards {tuple(rewards.shape)} and group_index {tuple(group_index.shape)} must be [N]")
    scored = ~torch.isnan(rewards)
    values = torch.zeros_like(rewards)
    batch_std = rewards[scored].std() if int(scored.sum()) > 1 else rewards.new_zeros(())
    labels = torch.unique(group_index).tolist()
    flat = small = 0
    teaching: list[int] = []
    for label in labels:
        members = scored & (group_index == label)
        group = rewards[members]
        if group.numel() < 2:
            small += 1
            continue
        if float(group.max() - group.min()) <= tolerance:
            flat += 1
            continue
        centred = group - group.mean()
        if scale == "group":
            centred = centred / (group.std() + eps)
        elif scale == "batch":
            centred = centred / (batch_std + eps)
        values[members] = centred
        teaching.append(label)
    return Advantages(values, len(labels), flat, small, int((~scored).sum()), frozenset(teaching))
