"""Claims about group-relative advantages."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.rl.advantage import Scale, group_advantages

NAN = math.nan


def advantages(rewards: list[float], groups: list[int], scale: Scale = "group") -> list[float]:
    values = group_advantages(torch.tensor(rewards, dtype=torch.float64), torch.tensor(groups), scale).values
    return list(values.tolist())


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_equals_a_plain_loop(scale: Scale) -> None:
    rewards, groups = [1.0, 4.0, 2.5, NAN, 10.0, -5.0, 9.0], [0, 0, 0, 0, 3, 3, 3]
    expected = []
    scored = [r for r in rewards if not math.isnan(r)]
    for reward, group in zip(rewards, groups, strict=True):
        members = [r for r, g in zip(rewards, groups, strict=True) if g == group and not math.isnan(r)]
        spread = {"group": statistics.stdev(members), "batch": statistics.stdev(scored), "none": 1 - 1e-4}[scale]
        centred = reward - statistics.fmean(members)
        expected.append(0.0 if math.isnan(reward) else centred / (spread + 1e-4))
    assert advantages(rewards, groups, scale) == pytest.approx(expected, abs=1e-12)


def test_unscored_rollouts_do_not_move_the_others() -> None:
    assert advantages([1.0, 3.0, NAN], [0, 0, 0]) == [*advantages([1.0, 3.0], [0, 0]), 0.0]


def test_groups_without_contrast_are_counted_and_silent() -> None:
    rewards = torch.tensor([2.0, 2.0004, 9.0, NAN, NAN, 1.0, 3.0])
    result = group_advantages(rewards, torch.tensor([0, 0, 1, 1, 2, 3, 3]))
    assert result.values[:5].tolist() == [0.0] * 5
    assert (result.groups, result.zero_variance_groups, result.small_groups, result.unscored) == (4, 1, 2, 2)
    assert result.skipped_groups == 3


def test_jitter_of_cost_terms_is_not_blown_up() -> None:
    assert advantages([9.5, 9.5001, 9.4999], [0, 0, 0]) == [0.0, 0.0, 0.0]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8), st.floats(-100, 100))
def test_sum_is_zero_and_a_shift_changes_nothing(rewards: list[float], shift: float) -> None:
    plain = advantages(rewards, [0] * len(rewards), "none")
    assert sum(plain) == pytest.approx(0, abs=1e-9)
    # At the tolerance itself a shift may round to the other side.
    if abs(max(rewards) - min(rewards) - 1e-3) > 1e-9:
        shifted = advantages([r + shift for r in rewards], [0] * len(rewards), "none")
        assert plain == pytest.approx(shifted, abs=1e-9)


def test_order_does_not_matter() -> None:
    rewards, groups = [1.0, 5.0, 2.0, 8.0, 3.0], [0, 1, 0, 1, 0]
    order = [3, 0, 4, 2, 1]
    plain = advantages(rewards, groups)
    permuted = advantages([rewards[i] for i in order], [groups[i] for i in order])
    assert permuted == pytest.approx([plain[i] for i in order])


def test_bad_shapes_and_scales_are_refused() -> None:
    with pytest.raises(ValueError, match="must be \\[N\\]"):
        group_advantages(torch.zeros(3), torch.zeros(2))
    with pytest.raises(ValueError, match="scale"):
        group_advantages(torch.zeros(2), torch.zeros(2), "std")  # type: ignore[arg-type]
