"""The reward: every term counts, the documented sum, and no wrong answer above a right one."""

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from llm_as_judge import types
from llm_as_judge.config.schema import RewardConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.ablation import PARTS
from llm_as_judge.rewards.terms import TERMS
from llm_as_judge.rewards.total import RewardFunction
from llm_as_judge.types import Completion, Exchange, Execution, Finding, OperatorCall, Problem, Reward, Verdict

WEIGHTS = {"correctness": 0.65, "efficiency": 0.15, "simplicity": 0.10, "format": 0.05, "repetition": 0.05}
WORKFLOW = """class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer_generate = operator.AnswerGenerate(self.llm)

    async def __call__(self, problem: str):
        return (await self.answer_generate(input=problem))['answer'], 0.0
"""
UNUSED = Finding("W205", "self.review (Review) is built but never used", 5, fatal=False)
UNFINISHED = ("invalid", "raised", "timeout", "memory", "output_limit", "budget")


def call(name: str = "Custom", tokens: int = 0, **arguments: Any) -> OperatorCall:
    return OperatorCall(name, arguments, {}, (Exchange("", "", "stop", tokens, 0, 0.0, 0.0),))


def reward(
    correct: bool | None,
    *,
    outcome: Any = "finished",
    answer: str | None = "12",
    calls: tuple[OperatorCall, ...] = (),
    text: str = WORKFLOW,
    findings: tuple[Finding, ...] = (),
    domain: Any = "math",
) -> Reward:
    function = RewardFunction(RewardConfig(reward_weights=WEIGHTS, token_budget=1000, operator_budget=5))
    return function(
        Problem(types.Question("p", "?", domain), types.Reference(("12",))),
        Completion(text, (), (), (), "stop"),
        Execution(outcome, answer, calls, findings=findings),
        Verdict(correct, "rules"),
    )


def total(*args: Any, **kwargs: Any) -> float:
    value = reward(*args, **kwargs).total
    assert value is not None
    return value


def test_the_terms_are_those_of_the_table_and_the_best_total_is_nine_and_a_half() -> None:
    assert dict(RewardConfig().reward_weights) == WEIGHTS and list(WEIGHTS) == list(TERMS)
    assert {f"reward.{term}" for term in TERMS if term != "correctness"} < set(PARTS)
    best = reward(True, calls=(call(),))
    assert best.total == pytest.approx(9.5)
    assert dict(best.terms) == {**dict.fromkeys(TERMS, 10.0), "repetition": 0.0}


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
def test_right_above_wrong_above_unfinished(
    right: dict[str, Any], wrong: dict[str, Any], broken: dict[str, Any], outcome: str
) -> None:
    best, middle, worst = total(True, **right), total(False, **wrong), total(True, outcome=outcome, **broken)
    assert 9.5 >= best > middle + 5
    assert middle >= worst == pytest.approx(-3.75)
    scaled = RewardFunction(RewardConfig(reward_weights=WEIGHTS)).scaled
    assert scaled(best) - scaled(middle) == pytest.approx((best - middle) / 13.25)
    assert (scaled(worst), scaled(9.5), scaled(-9), scaled(99)) == (pytest.approx(0), pytest.approx(1), 0, 1)


def test_a_failure_of_ours_is_unscored() -> None:
    assert reward(None) == Reward(None)
    assert reward(True, outcome="fault") == Reward(None)
    assert reward(None, outcome="raised").total is not None, "the policy's fault, whatever the judge says"


def test_the_total_is_the_weighted_sum_of_its_terms() -> None:
    got = reward(True, calls=(call(tokens=300), call(tokens=200)), findings=(UNUSED,), text="a b c d e f " * 4)
    terms = got.terms
    assert (terms["efficiency"], terms["simplicity"], terms["format"]) == (5.0, 7.5, 5.0) and terms["repetition"] > 0
    expected = sum((-1 if term == "repetition" else 1) * WEIGHTS[term] * terms[term] for term in WEIGHTS)
    assert got.total == pytest.approx(expected)


def term(name: str, **run: Any) -> float:
    return reward(True, **run).terms[name]


def test_efficiency_and_simplicity_are_linear_and_clipped() -> None:
    assert [term("efficiency", calls=(call(tokens=n),)) for n in (0, 250, 1000, 5000)] == [10.0, 7.5, 0.0, 0.0]
    assert [term("simplicity", calls=(call(),) * n) for n in (0, 1, 2, 3, 5, 9)] == [10.0, 10.0, 7.5, 5.0, 0.0, 0.0]


def test_the_format_term_requires_a_clean_answer() -> None:
    wrong = []
    warnings.simplefilter("error")  # odd Python gives none
    for answer, domain, clean in (
        ("1if 0else 2 is 3\n4and", "code", False), ("x = 1if 0else 2", "code", True),
        ("12", "math", True), (r"\frac{1}{2}", "math", True), ("The answer is 12", "math", False),
        ("<answer>12</answer>", "math", False), ("12\n", "math", True), ("1\n2", "math", False), ("Paris", "qa", True),
        ("word " * 80, "qa", False), ("def f():\n    return 1", "code", True),
        ("```python\ndef f(): ...\n```", "code", False), ("def f(:", "code", False), ("", "code", False),
        ("x = 1\n" * 10_000, "code", False), ("a\0b", "code", False), (None, "qa", False),
    ):  # fmt: skip
        found = [term("format", answer=answer, domain=domain, findings=f) for f in ((), (UNUSED,))]
        if found != ([10.0, 5.0] if clean else [5.0, 0.0]):
            wrong.append((answer, domain, found))
    assert not wrong


def test_repetition_of_calls_and_text() -> None:
    assert term("repetition") == term("repetition", text="") == 0.0
    assert term("repetition", calls=(call(input="a", n=1), call(n=1, input="a")), text="") == 5.0
    assert term("repetition", calls=(call("A", input="a"), call("B", input="a")), text="") == 0.0
    assert term("repetition", calls=(call(value={1, 2}),), text="") == 0.0, "arguments that JSON cannot hold"
    assert 9.0 < term("repetition", text="same words over and over again " * 50) <= 10.0


def test_weights_and_budgets_that_break_the_promise_are_refused() -> None:
    for change, message in (
        ({"correctness": 0.2, "efficiency": 0.6}, "outscore"),
        ({"format": -0.1, "efficiency": 0.3}, "negative"),
        ({"style": 0.1}, "style"),
        ({"efficiency": float("nan")}, "finite"),
    ):
        with pytest.raises((ConfigError, ValidationError), match=message):
            RewardFunction(RewardConfig(reward_weights={**WEIGHTS, **change}))
    for setting in ({"reward_weights": {"correctness": 1.0}}, {"token_budget": 0}, {"operator_budget": 1}):
        with pytest.raises(ValidationError, match=next(iter(setting))):
            RewardConfig(**setting)  # type: ignore[arg-type]
