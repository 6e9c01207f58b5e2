"""Group-relative advantages."""

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
SCALES: tuple[ScaleRewards, ...] = ("group", "batch", "none")


def group(*rewards: float, abstained: bool = False) -> Group:
    """A group with NaN for unscored rollouts, because the judge ``abstained`` or for another reason."""
    problem = Problem(Question("p", "text", "math"), Reference(("1",)))

    def rollout(total: float) -> Rollout:
        scored = not math.isnan(total)
        verdict = Verdict(True, "rules") if scored else Verdict(None, "llm" if abstained else "none")
        completion = Completion("", (1,), (2,), (0.0,), "stop")
        return Rollout(problem, completion, "", Execution("finished", "1"), verdict, Reward(total if scored else None))

    return Group(problem, tuple(map(rollout, rewards)))


def test_advantages_equal_a_plain_loop() -> None:
    rows = [[1.0, 4.0, 2.5, NAN], [10.0, -5.0, 9.0]]
    scored = [[r for r in row if not math.isnan(r)] for row in rows]
    for scale in SCALES:
        found = group_advantages([torch.tensor(row, dtype=torch.float64) for row in rows], scale)
        for row, known, worth in zip(rows, scored, found, strict=True):
            spread = {
                "group": statistics.stdev(known),
                "batch": statistics.stdev([*scored[0], *scored[1]]),
                "none": 1 - 1e-4,
            }
            mean = statistics.fmean(known)
            expected = [0.0 if math.isnan(r) else (r - mean) / (spread[scale] + 1e-4) for r in row]
            assert worth.tolist() == pytest.approx(expected, abs=1e-12), scale


def test_groups_without_contrast_get_no_advantage() -> None:
    credited = credit([group(9.5, 9.5001, 9.4999), group(9.0, NAN), group(NAN), group(1.0, 3.0)], "group")
    assert [c.contrast for c in credited] == [False, False, False, True]
    assert [c.unscored for c in credited] == [0, 1, 1, 0]
    assert [a for c in credited[:3] for a in c.advantages] == [0.0] * 6


def test_a_group_with_an_abstention_is_left_out() -> None:
    biased, sound = group(9.0, 8.0, -3.0, NAN, abstained=True), group(1.0, 3.0, NAN)
    for scale in SCALES:
        left_out, kept = credit([biased, sound], scale)
        assert (left_out.left_out, left_out.contrast, left_out.unscored) == (True, False, 1)
        assert left_out.advantages == (0.0,) * 4 and all(map(math.isnan, left_out.rewards))
        assert kept.advantages == credit([sound], scale)[0].advantages
        assert (kept.left_out, kept.unscored) == (False, 1), "a failure of ours does not bias the others"


def test_shuffling_permutes_the_scored_rewards_over_the_batch() -> None:
    groups = [group(*map(float, range(6 * i, 6 * i + 6))) for i in range(5)] + [group(NAN, 40.0)]
    found, again = ([c.rewards for c in credit(groups, "none", shuffle_seed=3)] for _ in range(2))
    assert found[:-1] == again[:-1] and found[-1][1] == again[-1][1] and math.isnan(found[-1][0])
    assert sorted(r for row in found for r in row if not math.isnan(r)) == [*map(float, range(30)), 40.0]
    assert found[0] != (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)


@settings(max_examples=60)
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8), st.floats(-100, 100))
def test_sum_is_zero_and_a_shift_changes_nothing(rewards: list[float], shift: float) -> None:
    row = torch.tensor(rewards, dtype=torch.float64)
    plain, shifted = (worth.tolist() for worth in group_advantages([row, row + shift], "none"))
    assert sum(plain) == pytest.approx(0, abs=1e-9)
    # At the tolerance itself a shift may round to the other side.
    if abs(max(rewards) - min(rewards) - 1e-3) > 1e-9:
        assert plain == pytest.approx(shifted, abs=1e-9)
