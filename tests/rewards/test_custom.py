"""Reward functions of the user's own."""

from pathlib import Path

import pytest

from llm_as_judge.config.schema import RewardConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.rewards.custom import CustomRewards, load_function
from llm_as_judge.rewards.total import RewardFunction
from llm_as_judge.types import Completion, Execution, Group, Problem, Question, Reference, Reward, Rollout, Verdict

SOURCE = """
def brevity(prompts, completions, **columns):
    assert columns["domain"] == ["math"] * len(prompts)
    return [1.0 if len(text) < 5 else None for text in completions]

async def right(prompts, completions, correct, **columns):
    return [2.0 * bool(value) for value in correct]

def short(completions):
    return [float(len(text)) for text in completions]

def keywords(completions, **kwargs):
    assert set(kwargs) >= {"prompts", "completion_ids", "ground_truth", "domain", "answer", "correct"}
    return [1.0] * len(completions)

def truth(prompts, completions, ground_truth, answer=None):
    return [float(a == truth) for a, truth in zip(answer, ground_truth)]

def ids(*, completion_ids, scale=2.0):
    return [scale * len(i) for i in completion_ids]

def state(prompts, completions, trainer_state, solution):
    return []

def positional(completions, /):
    return []

def few(prompts, completions, **columns):
    return [1.0]

def text(prompts, completions, **columns):
    return ["good"] * len(prompts)

def leave(prompts, **columns):
    raise SystemExit(0)

number = 3
"""


def rollout(text: str, total: float | None, correct: bool = True) -> Rollout:
    problem = Problem(Question("p", "2+2?", "math"), Reference(("4",)))
    completion = Completion(text, (), (1, 2, 3), (0.0,) * 3, "stop")
    return Rollout(
        problem, completion, "", Execution("finished", "4"), Verdict(correct, "rules"), Reward(total, {"a": 1.0})
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def custom(file: Path, limit: float = 10.0, **weights: float) -> CustomRewards:
    return CustomRewards({n: (load_function(f"{file}:{n}"), w) for n, w in weights.items()}, limit)


async def added(rewards: CustomRewards, *rollouts: Rollout) -> list[Reward]:
    groups = await rewards.add([Group(rollouts[0].problem, rollouts[:1]), Group(rollouts[0].problem, rollouts[1:])])
    return [r.reward for g in groups for r in g.rollouts]


async def test_sync_and_async_functions_are_terms_and_none_leaves_one_out(file: Path) -> None:
    rewards = custom(file, brevity=0.5, right=1.0)
    one, two, unscored = await added(rewards, rollout("abc", 9.0), rollout("abcdef", -3.0, False), rollout("x", None))
    assert (one.total, one.terms) == (11.5, {"a": 1.0, "brevity": 1.0, "right": 2.0})
    assert (two.total, two.terms) == (-3.0, {"a": 1.0, "right": 0.0})
    assert unscored.total is None


async def test_parameters_are_passed_by_name_as_trl_passes_them(file: Path) -> None:
    rewards = custom(file, limit=100.0, short=1.0, keywords=1.0, truth=1.0, ids=1.0)
    (reward,) = await added(rewards, rollout("abc", 0.0))
    assert reward.terms == {"a": 1.0, "short": 3.0, "keywords": 1.0, "truth": 1.0, "ids": 6.0}


async def test_together_they_cannot_lift_a_wrong_answer_above_a_right_one(file: Path) -> None:
    rewards = custom(file, limit=1.5, brevity=-100.0, right=0.0)
    one, two = await added(rewards, rollout("a", 9.0), rollout("b" * 9, 5.0))
    assert (one.total, two.total) == (7.5, 5.0)
    assert RewardFunction(RewardConfig()).slack == pytest.approx((15 * 0.65 - 3.5) / 2)


def test_a_function_that_cannot_be_used_is_refused_with_the_reason(file: Path) -> None:
    for name, message in (
        (f"{file}:state", "asks for trainer_state, solution; .* there are prompts, completions, completion_ids"),
        (f"{file}:positional", "asks for completions; parameters are passed by name"),
        (f"{file}:number", "not a function"), (f"{file}:missing", "has no 'missing'"),
        ("nowhere.py:f", "no file nowhere.py"), ("no_such_module:f", "cannot import"),
        ("math", "write package.module:function"), ("math:sqrrt", "did you mean 'sqrt'"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            load_function(name)


async def test_what_it_returns_or_raises_is_checked(file: Path) -> None:
    for name, message in (("few", "must return 2 values, got 1"), ("text", "finite numbers"), ("leave", "SystemExit")):
        with pytest.raises(ConfigError, match=message):
            await added(custom(file, **{name: 1.0}), rollout("a", 1.0), rollout("b", 1.0))
