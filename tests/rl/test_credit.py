"""Group-relative advantages."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.config.schema import ScaleRewards
from llm_as_judge.rl.credit import credit, group_advantages
from llm_as_judge.types import Completion, Execution, Group, Problem, Question, Reference, Reward, Rollout, Verdict

NAN = math.nan


def advantages(rewards: list[float], groups: list[int], scale: ScaleRewards = "group") -> list[float]:
    """Advantages in the order of ``rewards``; ``groups`` labels the group of each."""
    labels = sorted(set(groups))
    rows = [[r for r, g in zip(rewards, groups, strict=True) if g == label] for label in labels]
    worth = group_advantages([torch.tensor(row, dtype=torch.float64) for row in rows], scale)
    left = dict(zip(labels, (iter(row.tolist()) for row in worth), strict=True))
    return [next(left[g]) for g in groups]


def group(*rewards: float, abstained: int = 0) -> Group:
    """A group with NaN for unscored rollouts; the judge abstained on the first ``abstained`` of these."""
    left = iter(range(abstained))
    problem = Problem(Question("p", "text", "math"), Reference(("1",)))

    def rollout(total: float) -> Rollout:
        reward = Reward(None if math.isnan(total) else total)
        completion = Completion("", (1,), (2,), (0.0,), "stop")
        verdict = Verdict(True, "rules")
        if math.isnan(total):
            verdict = Verdict(None, "llm" if next(left, None) is not None else "none")
        return Rollout(problem, completion, "", Execution("finished", "1"), verdict, reward)

    return Group(problem, tuple(map(rollout, rewards)))


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_equals_a_plain_loop(scale: ScaleRewards) -> None:
    rewards, groups = [1.0, 4.0, 2.5, NAN, 10.0, -5.0, 9.0], [0, 0, 0, 0, 3, 3, 3]
    expected = []
    scored = [r for r in rewards if not math.isnan(r)]
    for reward, group in zip(rewards, groups, strict=True):
        members = [r for r, g in zip(rewards, groups, strict=True) if g == group and not math.isnan(r)]
        spread = {"group": statistics.stdev(members), "batch": statistics.stdev(scored), "none": 1 - 1e-4}[scale]
        centred = reward - statistics.fmean(members)
        expected.append(0.0 if math.isnan(reward) else centred / (spread + 1e-4))
    assert advantages(rewards, groups, scale) == pytest.approx(expected, abs=1e-12)


def test_groups_without_contrast_get_no_advantage() -> None:
    credited = credit([group(9.5, 9.5001, 9.4999), group(9.0, NAN), group(NAN), group(1.0, 3.0)], "group")
    assert [c.contrast for c in credited] == [False, False, False, True]
    assert [c.unscored for c in credited] == [0, 1, 1, 0]
    assert [a for c in credited[:3] for a in c.advantages] == [0.0] * 6


def test_a_group_with_an_abstention_is_left_out() -> None:
    biased, sound = group(9.0, 8.0, -3.0, NAN, abstained=1), group(1.0, 3.0, NAN)
    for scale in ("none", "group", "batch"):
        left_out, kept = credit([biased, sound], scale)  # type: ignore[arg-type]
        assert (left_out.left_out, left_out.contrast, left_out.unscored) == (True, False, 1)
        assert left_out.advantages == (0.0,) * 4 and all(map(math.isnan, left_out.rewards))
        assert kept.advantages == credit([sound], scale)[0].advantages  # type: ignore[arg-type]
        assert (kept.left_out, kept.unscored) == (False, 1), "a failure of ours does not bias the others"


def test_shuffling_permutes_the_scored_rewards_over_the_batch() -> None:
    groups = [group(*map(float, range(6 * i, 6 * i + 6))) for i in range(5)] + [group(NAN, 40.0)]
    found = [c.rewards for c in credit(groups, "none", shuffle_seed=3)]
    assert found == [c.rewards for c in credit(groups, "none", shuffle_seed=3)] or math.isnan(found[-1][0])
    assert sorted(r for row in found for r in row if not math.isnan(r)) == [*map(float, range(30)), 40.0]
    assert found[0] != (0.0, 1.0, 2.0, 3.0, 4.0, 5.0) and math.isnan(found[-1][0])


@settings(max_examples=60)
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8), st.floats(-100, 100))
def test_sum_is_zero_and_a_shift_changes_nothing(rewards: list[float], shift: float) -> None:
    plain = advantages(rewards, [0] * len(rewards), "none")
    assert sum(plain) == pytest.approx(0, abs=1e-9)
    # At the tolerance itself a shift may round to the other side.
    if abs(max(rewards) - min(rewards) - 1e-3) > 1e-9:
        shifted = advantages([r + shift for r in rewards], [0] * len(rewards), "none")
        assert plain == pytest.approx(shifted, abs=1e-9)
