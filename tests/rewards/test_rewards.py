"""The reward: every term alive, the documented sum, and no wrong answer above a right one."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from llm_as_judge.config.schema import RewardConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.rewards.terms import answer_format, efficiency, is_clean, repetition, simplicity
from llm_as_judge.rewards.total import RewardFunction
from llm_as_judge.types import (
    Completion,
    Domain,
    Exchange,
    Execution,
    Finding,
    OperatorCall,
    Outcome,
    Problem,
    Question,
    Reference,
    Reward,
    Verdict,
)

WEIGHTS = {"correctness": 0.65, "efficiency": 0.15, "simplicity": 0.10, "format": 0.05, "repetition": 0.05}
WORKFLOW = """class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer_generate = operator.AnswerGenerate(self.llm)
        self.review = operator.Review(self.llm)
        self.revise = operator.Revise(self.llm)

    async def __call__(self, problem: str):
        answer = await self.answer_generate(input=problem)
        review = await self.review(problem=problem, solution=answer['answer'])
        if not review['review_result']:
            feedback = review['feedback']
            answer = await self.revise(problem=problem, solution=answer['answer'], feedback=feedback)
        return answer['answer'], 0.0
"""


UNUSED = Finding("W205", "self.review (Review) is built but never used", 5, fatal=False)


def call(name: str = "Custom", tokens: int = 0, **arguments: Any) -> OperatorCall:
    return OperatorCall(name, arguments, {}, (Exchange("", "", "stop", tokens, 0, 0.0, 0.0),))


def reward(
    correct: bool | None,
    *,
    outcome: Outcome = "finished",
    answer: str | None = "12",
    calls: tuple[OperatorCall, ...] = (),
    text: str = WORKFLOW,
    findings: tuple[Finding, ...] = (),
    domain: Domain = "math",
) -> Reward:
    function = RewardFunction(RewardConfig(reward_weights=WEIGHTS, token_budget=1000, operator_budget=5))
    return function(
        Problem(Question("p", "?", domain), Reference(("12",))),
        Completion(text, (), (), (), "stop"),
        Execution(outcome, answer, calls, findings=findings),
        Verdict(correct, "rules"),
    )


def total(*args: Any, **kwargs: Any) -> float:
    value = reward(*args, **kwargs).total
    assert value is not None
    return value


def test_the_best_possible_is_nine_and_a_half() -> None:
    best = reward(True, calls=(call(),))
    assert best.total == pytest.approx(9.5)
    assert dict(best.terms) == {
        "correctness": 10.0,
        "efficiency": 10.0,
        "simplicity": 10.0,
        "format": 10.0,
        "repetition": 0.0,
    }


calls_ = st.lists(
    st.builds(call, st.sampled_from(["Custom", "Test"]), st.integers(0, 2000), input=st.sampled_from("ab")),
    max_size=8,
).map(tuple)
runs = st.fixed_dictionaries(
    {
        "answer": st.sampled_from(["12", "The answer is 12", "x" * 500, "def f(): return 1"]),
        "calls": calls_,
        "text": st.sampled_from([WORKFLOW, "a b c " * 50, ""]),
        "findings": st.sampled_from([(), (UNUSED,)]),
        "domain": st.sampled_from(["math", "code", "qa"]),
    }
)
unfinished = st.sampled_from(["invalid", "raised", "timeout", "memory", "output_limit", "budget"])


@settings(deadline=None)
@given(runs, runs, runs, unfinished)
def test_right_above_wrong_above_unfinished(
    right: dict[str, Any], wrong: dict[str, Any], broken: dict[str, Any], outcome: Outcome
) -> None:
    best, middle, worst = total(True, **right), total(False, **wrong), total(True, outcome=outcome, **broken)
    assert best > middle + 5
    assert middle >= worst
    assert best <= 9.5


@pytest.mark.parametrize("outcome", ["invalid", "raised", "timeout", "memory", "output_limit", "budget"])
def test_unfinished_runs_get_one_floor(outcome: Outcome) -> None:
    floor = reward(False, outcome=outcome, calls=(call(tokens=1),))
    assert floor.total == pytest.approx(-3.75)
    assert (floor.terms["correctness"], floor.terms["efficiency"]) == (-5.0, 0.0)


@settings(deadline=None)
@given(runs, runs, st.booleans())
def test_every_total_has_its_place_between_nothing_and_one(one: Any, other: Any, right: bool) -> None:
    scaled = RewardFunction(RewardConfig(reward_weights=WEIGHTS)).scaled
    assert (scaled(-3.75), scaled(9.5)) == (pytest.approx(0), pytest.approx(1)) and (scaled(-9), scaled(99)) == (0, 1)
    totals = total(right, **one), total(False, **other)
    assert scaled(totals[0]) - scaled(totals[1]) == pytest.approx((totals[0] - totals[1]) / 13.25)


def test_what_is_our_fault_is_unscored() -> None:
    assert reward(None) == Reward(None)
    assert reward(True, outcome="fault") == Reward(None)
    assert reward(None, outcome="raised").total is not None  # the policy's fault, whatever the judge says


def test_the_total_is_the_weighted_sum_of_its_terms() -> None:
    got = reward(True, calls=(call(tokens=300), call(tokens=200)), findings=(UNUSED,), text="a b c d e f " * 4)
    terms = got.terms
    assert terms["efficiency"] == 5.0 and terms["simplicity"] == 7.5 and terms["format"] == 5.0
    assert terms["repetition"] > 0
    expected = sum((-1 if term == "repetition" else 1) * WEIGHTS[term] * terms[term] for term in WEIGHTS)
    assert got.total == pytest.approx(expected)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"calls": (call(tokens=10),)}, {"calls": (call(tokens=900),)}),
        ({"calls": (call(input="a"),)}, {"calls": (call(input="a"), call(input="b"))}),
        ({}, {"findings": (UNUSED,)}),
        ({}, {"answer": "The answer is 12"}),
        (
            {"calls": (call(input="a"), call(input="b"))},
            {"calls": (call(input="a"), call(input="a"))},
        ),
        ({}, {"text": WORKFLOW + WORKFLOW}),
    ],
)
def test_each_term_moves_the_total(better: dict[str, Any], worse: dict[str, Any]) -> None:
    assert total(True, **better) > total(True, **worse)


def test_efficiency_and_simplicity_are_linear_and_clipped() -> None:
    assert [efficiency(tokens, 1000) for tokens in (0, 250, 1000, 5000)] == [10.0, 7.5, 0.0, 0.0]
    assert [simplicity(calls, 5) for calls in (0, 1, 2, 3, 5, 9)] == [10.0, 10.0, 7.5, 5.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("answer", "domain", "clean"),
    [
        ("12", "math", True),
        (r"\frac{1}{2}", "math", True),
        ("The answer is 12", "math", False),
        ("<answer>12</answer>", "math", False),
        ("12\n", "math", True),
        ("1\n2", "math", False),
        ("Paris", "qa", True),
        ("word " * 80, "qa", False),
        ("def f():\n    return 1", "code", True),
        ("```python\ndef f(): ...\n```", "code", False),
        ("def f(:", "code", False),
        ("", "code", False),
        ("a\0b", "code", False),
        (None, "qa", False),
    ],
)
def test_clean_answers(answer: str | None, domain: Domain, clean: bool) -> None:
    assert is_clean(answer, domain) is clean
    assert answer_format(answer, domain, ()) == (10.0 if clean else 5.0)
    assert answer_format(answer, domain, (UNUSED,)) == (5.0 if clean else 0.0)


def test_repetition_of_calls_and_text() -> None:
    assert repetition((), WORKFLOW) == 0.0
    assert repetition((), "") == 0.0
    assert repetition((call(input="a", n=1), call(n=1, input="a")), "") == 5.0
    assert repetition((call("A", input="a"), call("B", input="a")), "") == 0.0
    assert repetition((call(value={1, 2}),), "") == 0.0  # arguments that JSON cannot hold
    assert 9.0 < repetition((), "same words over and over again " * 50) <= 10.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"correctness": 0.2, "efficiency": 0.6}, "outscore"),
        ({"format": -0.1, "efficiency": 0.3}, "negative"),
        ({"style": 0.1}, "style"),
        ({"efficiency": float("nan")}, "finite"),
    ],
)
def test_weights_that_break_the_promise_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises((ConfigError, ValidationError), match=message):
        RewardFunction(RewardConfig(reward_weights={**WEIGHTS, **change}))
    with pytest.raises(ValidationError, match="lacks efficiency"):
        RewardConfig(reward_weights={"correctness": 1.0})


def test_budgets_must_mean_something() -> None:
    with pytest.raises(ValidationError, match="token_budget"):
        RewardConfig(token_budget=0)
    with pytest.raises(ValidationError, match="operator_budget"):
        RewardConfig(operator_budget=1)


def test_odd_python_in_an_answer_is_no_news_on_the_terminal() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not is_clean("1if 0else 2 is 3\n4and", "code")
        assert is_clean("x = 1if 0else 2", "code")
