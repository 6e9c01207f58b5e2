"""Claims about group-relative advantages."""

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
    """In the order of ``rewards``, each of which is in the group of that label."""
    labels = sorted(set(groups))
    rows = [[r for r, g in zip(rewards, groups, strict=True) if g == label] for label in labels]
    worth = group_advantages([torch.tensor(row, dtype=torch.float64) for row in rows], scale)
    left = dict(zip(labels, (iter(row.tolist()) for row in worth), strict=True))
    return [next(left[g]) for g in groups]


def group(*rewards: float, abstained: int = 0) -> Group:
    """The first ``abstained`` of the unscored ones are the judge's abstentions."""
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


def test_unscored_rollouts_do_not_move_the_others() -> None:
    assert advantages([1.0, 3.0, NAN], [0, 0, 0]) == [*advantages([1.0, 3.0], [0, 0]), 0.0]


def test_groups_without_contrast_are_counted_and_silent() -> None:
    credited = credit([group(2.0, 2.0004), group(9.0, NAN), group(NAN), group(1.0, 3.0)], "group")
    assert [c.contrast for c in credited] == [False, False, False, True]
    assert [c.unscored for c in credited] == [0, 1, 1, 0]
    assert [a for c in credited[:3] for a in c.advantages] == [0.0] * 5


def test_a_group_in_which_the_judge_abstained_is_left_out_whole() -> None:
    """Rules accepted two right answers; the one that the judge left open is more likely wrong than they are."""
    biased, sound = group(9.0, 8.0, -3.0, NAN, abstained=1), group(1.0, 3.0, NAN)
    for scale in ("none", "group", "batch"):
        left_out, kept = credit([biased, sound], scale)  # type: ignore[arg-type]
        assert (left_out.left_out, left_out.contrast, left_out.unscored) == (True, False, 1)
        assert left_out.advantages == (0.0,) * 4 and all(map(math.isnan, left_out.rewards))
        assert kept.advantages == credit([sound], scale)[0].advantages  # type: ignore[arg-type]
        assert (kept.left_out, kept.unscored) == (False, 1), "our own fault leaves the other rollouts comparable"


def test_credit_travels_with_its_group() -> None:
    groups = [group(1.0, 3.0), group(NAN, 5.0, 9.0)]
    credited = credit(groups, "none")
    assert [c.group for c in credited] == groups
    assert [c.advantages for c in credited] == [(-1.0, 1.0), (0.0, -2.0, 2.0)]
    assert credited[0].rewards == (1.0, 3.0) and credited[1].rewards[1:] == (5.0, 9.0)


def test_the_control_experiment_permutes_the_scored_rewards_over_the_batch() -> None:
    groups = [group(*map(float, range(6 * i, 6 * i + 6))) for i in range(5)] + [group(NAN, 40.0)]
    found = [c.rewards for c in credit(groups, "none", shuffle_seed=3)]
    assert found == [c.rewards for c in credit(groups, "none", shuffle_seed=3)] or math.isnan(found[-1][0])
    assert sorted(r for row in found for r in row if not math.isnan(r)) == [*map(float, range(30)), 40.0]
    assert found[0] != (0.0, 1.0, 2.0, 3.0, 4.0, 5.0) and math.isnan(found[-1][0])


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
