"""The reward: every term counts, no wrong answer above a right one; reward functions of the user's own."""

import asyncio
import random
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.tables import tables
from helpers.workflows import workflow
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from llm_as_judge import types
from llm_as_judge.config.schema import RewardConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.ablation import PARTS
from llm_as_judge.rewards.custom import CustomRewards, load_rewards
from llm_as_judge.rewards.terms import TERMS, RewardFunction

TABLES = tables(__file__)

WEIGHTS = {"correctness": 0.65, "efficiency": 0.15, "simplicity": 0.10, "format": 0.05, "repetition": 0.05}
WORKFLOW = workflow()
UNUSED = types.Finding("W205", "self.review (Review) is built but never used", 5, fatal=False)
UNFINISHED = ("invalid", "raised", "timeout", "memory", "output_limit", "budget")


def call(name: str = "Custom", tokens: int = 0, **arguments: Any) -> types.OperatorCall:
    return types.OperatorCall(name, arguments, {}, (types.Exchange("", "", "stop", tokens, 0, 0.0, 0.0),))


def reward(
    correct: bool | None,
    *,
    outcome: Any = "finished",
    answer: str | None = "12",
    calls: tuple[types.OperatorCall, ...] = (),
    text: str = WORKFLOW,
    findings: tuple[types.Finding, ...] = (),
    domain: Any = "math",
) -> types.Reward:
    function = RewardFunction(RewardConfig(reward_weights=WEIGHTS, token_budget=1000))
    problem = types.Problem(types.Question("p", "?", domain), types.Reference(("12",)))
    run, verdict = types.Execution(outcome, answer, calls, findings=findings), types.Verdict(correct, "rules")
    return function(
        types.Rollout(problem, types.Completion(text, (), (), (), "stop"), text, run, verdict, types.Reward(None))
    )


def total(*args: Any, **kwargs: Any) -> float:
    value = reward(*args, **kwargs).total
    assert value is not None
    return value


def test_the_terms_are_those_of_the_table_and_the_total_is_their_weighted_sum() -> None:
    assert dict(RewardConfig().reward_weights) == WEIGHTS and list(WEIGHTS) == list(TERMS)
    assert {f"reward.{term}" for term in TERMS if term != "correctness"} < set(PARTS)
    best = reward(True, calls=(call(),))
    assert best.total == pytest.approx(9.5)
    assert dict(best.terms) == {**dict.fromkeys(TERMS, 10.0), "repetition": 0.0}
    got = reward(True, calls=(call(tokens=300), call(tokens=200)), findings=(UNUSED,), text="a b c d e f " * 4)
    terms = got.terms
    assert [terms[term] for term in ("efficiency", "simplicity", "format")] == pytest.approx([5, 60 / 7, 5])
    assert terms["repetition"] > 0
    expected = sum((-1 if term == "repetition" else 1) * WEIGHTS[term] * terms[term] for term in WEIGHTS)
    assert got.total == pytest.approx(expected)


RUNS = st.fixed_dictionaries(
    {
        "answer": st.sampled_from(["12", "The answer is 12", "x" * 500, "def f(): return 1"]),
        "calls": st.lists(
            st.builds(call, st.sampled_from(["Custom", "Test"]), st.integers(0, 2000), input=st.sampled_from("ab")),
            max_size=8,
        ).map(tuple),
        "text": st.sampled_from([WORKFLOW, "a b c " * 50, ""]),
        "findings": st.sampled_from([(), (UNUSED,)]),
        "domain": st.sampled_from(["math", "code", "qa"]),
    }
)


@given(RUNS, RUNS, RUNS, st.sampled_from(UNFINISHED))
def test_right_over_wrong_over_unfinished(
    right: dict[str, Any], wrong: dict[str, Any], broken: dict[str, Any], outcome: str
) -> None:
    best, middle, worst = total(True, **right), total(False, **wrong), total(True, outcome=outcome, **broken)
    assert 9.5 >= best > middle + 5
    assert middle >= worst == pytest.approx(-3.75)


def test_a_failure_of_ours_is_unscored() -> None:
    assert reward(None) == types.Reward(None)
    assert reward(True, outcome="fault") == types.Reward(None)
    assert reward(None, outcome="raised").total is not None, "the policy's fault, whatever the judge says"


def term(name: str, **run: Any) -> float:
    return reward(True, **run).terms[name]


def test_efficiency_simplicity_repetition_and_format() -> None:
    assert [term("efficiency", calls=(call(tokens=n),)) for n in (0, 250, 1000, 5000)] == [10.0, 7.5, 0.0, 0.0]
    falling = [term("simplicity", calls=(call(),) * n) for n in (0, 1, 2, 3, 8, 9)]
    assert falling == pytest.approx([10, 10, 60 / 7, 50 / 7, 0, 0])
    assert term("repetition") == term("repetition", text="") == 0.0
    assert term("repetition", calls=(call(input="a", n=1), call(n=1, input="a")), text="") == 5.0
    assert term("repetition", calls=(call("A", input="a"), call("B", input="a")), text="") == 0.0
    assert term("repetition", calls=(call(value={1, 2}),), text="") == 0.0, "arguments that JSON cannot hold"
    again = "same words over and over again " * 50
    assert 9.0 < term("repetition", text=again) <= 10.0 and term("repetition", text=f"{again}</think>one") == 0.0
    wrong = []
    warnings.simplefilter("error")  # odd Python gives none
    long = [("word " * 80, "qa", False), ("x = 1\n" * 10_000, "code", False)]
    for answer, domain, clean in [*TABLES["format"], *long]:
        found = [term("format", answer=answer, domain=domain, findings=f) for f in ((), (UNUSED,))]
        if found != ([10.0, 5.0] if clean else [5.0, 0.0]):
            wrong.append((answer, domain, found))
    assert not wrong


def test_weights_and_budgets_that_break_the_promise_are_refused() -> None:
    for change, message in (
        ({"correctness": 0.2, "efficiency": 0.6}, "outscore"), ({"format": -0.1, "efficiency": 0.3}, "negative"),
        ({"style": 0.1}, "style"), ({"efficiency": float("nan")}, "finite"),
    ):  # fmt: skip
        with pytest.raises((ConfigError, ValidationError), match=message):
            RewardFunction(RewardConfig(reward_weights={**WEIGHTS, **change}))
    for setting in ({"reward_weights": {"correctness": 0.9}}, {"token_budget": 0}):
        with pytest.raises(ValidationError, match=next(iter(setting))):
            RewardConfig(**setting)  # type: ignore[arg-type]


def test_any_earlier_attempt_lowers_the_total() -> None:
    """So that no policy gains by failing first, whatever it wrote and however the episode ends."""
    draw = random.Random(3)
    function = RewardFunction(RewardConfig(token_budget=1000, repair_cost=0.1), repairs=8)
    problem = types.Problem(types.Question("p", "?", "math"), types.Reference(("12",)))

    def some_run() -> types.Execution:
        calls = tuple(call(tokens=draw.choice((0, 40, 2000)), a=draw.random()) for _ in range(draw.randrange(7)))
        findings = (UNUSED,) * draw.randrange(2)
        return types.Execution(draw.choice(("finished", *UNFINISHED)), "12", calls, findings=findings)  # type: ignore[arg-type]

    for _ in range(300):
        last, earlier = some_run(), [some_run() for _ in range(draw.randrange(4))]
        completion, verdict = (
            types.Completion(WORKFLOW, (), (), (), "stop"),
            types.Verdict(draw.random() < 0.5, "rules"),
        )
        one = types.Rollout(problem, completion, WORKFLOW, last, verdict, types.Reward(None))
        attempts = [types.Attempt(WORKFLOW, run) for run in (*earlier, some_run())]
        without, more = (function(replace(one, attempts=tuple(those))).total for those in (attempts[:-1], attempts))
        assert without is not None and more is not None and more <= without - 0.1 + 1e-9
    with pytest.raises(ConfigError, match="lets a wrong answer outscore"):
        RewardFunction(RewardConfig(repair_cost=2), repairs=4)


SOURCE = TABLES["SOURCE"]


def rollout(text: str, total: float | None, correct: bool = True) -> types.Rollout:
    problem = types.Problem(types.Question("p", "2+2?", "math"), types.Reference(("4",)))
    completion, run = types.Completion(text, (), (1, 2, 3), (0.0,) * 3, "stop"), types.Execution("finished", "4")
    return types.Rollout(problem, completion, "", run, types.Verdict(correct, "rules"), types.Reward(total, {"a": 1.0}))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def custom(file: Path, limit: float = 10.0, **weights: float) -> CustomRewards:
    named = {f"{file}:{name}": weight for name, weight in weights.items()}
    rewards = load_rewards(RewardConfig(functions=named, function_timeout_s=5), limit)
    assert rewards is not None
    return CustomRewards({name.rpartition(":")[2]: own for name, own in rewards.functions.items()}, limit)


async def added(rewards: CustomRewards, *rollouts: types.Rollout) -> list[types.Reward]:
    return [rollout.reward for rollout in await rewards.add(rollouts)]


async def test_own_functions_are_terms_by_name_that_cannot_lift_a_wrong_answer(file: Path) -> None:
    rewards = custom(file, brevity=0.5, right=1.0)
    one, two, unscored = await added(rewards, rollout("abc", 9.0), rollout("abcdef", -3.0, False), rollout("x", None))
    assert (one.total, one.terms) == (11.5, {"a": 1.0, "brevity": 1.0, "right": 2.0})
    assert (two.total, two.terms) == (-3.0, {"a": 1.0, "right": 0.0})
    assert unscored.total is None
    rewards = custom(file, limit=100.0, short=1.0, keywords=1.0, truth=1.0, ids=1.0)
    (reward,) = await added(rewards, rollout("abc", 0.0))
    assert reward.terms == {"a": 1.0, "short": 3.0, "keywords": 1.0, "truth": 1.0, "ids": 6.0}
    rewards = custom(file, limit=1.5, brevity=-100.0, right=0.0)
    one, two = await added(rewards, rollout("a", 9.0), rollout("b" * 9, 5.0))
    assert (one.total, two.total) == (7.5, 5.0)
    assert RewardFunction(RewardConfig()).slack == pytest.approx((15 * 0.65 - 3.5) / 2)


async def test_a_function_that_cannot_be_used_or_returns_nonsense_is_refused(file: Path) -> None:
    for name, message in (
        (f"{file}:state", "asks for trainer_state, solution; .* there are prompts, ground_truth, id"),
        (f"{file}:positional", "asks for completions; parameters are passed by name"),
        (f"{file}:number", "not a function"), (f"{file}:missing", "has no 'missing'"),
        ("nowhere.py:f", "no file nowhere.py"), ("no_such_module:f", "cannot import"),
        ("math", "write package.module:function"), ("math:sqrrt", "did you mean 'sqrt'"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            load_rewards(RewardConfig(functions={name: 1.0}), 1.0)
    for name, message in (("few", "must return a list of 2 values, .*, got 1"), ("text", "finite numbers")):
        rewards = custom(file, **{name: 1.0})
        with pytest.raises(ConfigError, match=message):
            await added(rewards, rollout("a", 1.0), rollout("b", 1.0))
        with pytest.raises(ConfigError, match=message):
            await rewards.try_out(rollout("a", 1.0))
    with pytest.raises(ConfigError, match=r"leave.* raised SystemExit: 0 \(.*mine.py, line \d+\); .*3 of 3 calls"):
        await custom(file, leave=1.0).try_out(rollout("a", 1.0))


async def test_a_function_that_fails_leaves_its_rollout_unscored_with_the_reason(file: Path) -> None:
    rewards = custom(file, picky=1.0, brevity=0.0)
    good, bad = await rewards.add([rollout("abc", 1.0), rollout("bad", 1.0)])
    assert (good.reward.total, good.reward.terms["picky"], good.verdict.correct) == (2.0, 1.0, True)
    assert (bad.reward.total, bad.verdict.correct) == (None, None)
    assert re.search(r"picky.* raised ValueError: no bad words \(.*mine.py, line \d+\)", bad.verdict.reason)
    (left,) = await custom(file, leave=1.0).add([rollout("abc", 1.0)])
    assert left.reward.total is None and "SystemExit" in left.verdict.reason


async def test_a_slow_function_blocks_no_other_work_and_ends_at_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text(
        "import asyncio, threading, time\nrelease = threading.Event()\n"
        "def sync(completions):\n    release.wait(600)\n    return [1.0]\n"
        "async def blocking(completions):\n    return sync(completions)\n"
        "async def waiting(completions):\n    await asyncio.sleep(600)\n",
        encoding="utf-8",
    )
    for name in ("sync", "waiting", "blocking"):
        rewards = load_rewards(RewardConfig(functions={f"{file}:{name}": 1.0}, function_timeout_s=0.2), 1.0)
        assert rewards is not None
        asked = asyncio.ensure_future(rewards.add([rollout("abc", 1.0)]))
        ticks = 0
        while not asked.done():  # the event loop goes on
            await asyncio.sleep(0.01)
            ticks += 1
        assert ticks > 1, name
        ((late),) = asked.result()
        assert late.reward.total is None and "took longer than 0.2 s" in late.verdict.reason, name
    function = next(iter(rewards.functions.values()))[0]
    function._function.__globals__["release"].set()  # type: ignore[attr-defined]  # frees the shared event loop
