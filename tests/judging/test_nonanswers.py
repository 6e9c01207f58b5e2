"""Words that answer nothing are not worth a model's True, and are not mistaken for answers that look like them."""

from __future__ import annotations

import pytest
from helpers.judging import ALONE, FALSE, HYBRID, TRUE, ScriptedModel

from llm_as_judge.answers.nonanswers import non_answer, refused
from llm_as_judge.judging.judge import Judge
from llm_as_judge.types import Domain, Exchange, Execution, OperatorCall, Problem, Question, Reference

NOTHING = [
    "I don't know", "I do not know.", "I'm sorry, I don't know", "I cannot answer that", "no idea", "unknown", "N/A",
    "not sure", "yes", "No.", "true", "wrong", "correct", "right", "It is correct", "The answer is correct",
    "matches the reference", "see above", "See the text.", "as stated above", "same as the reference",
    "the correct answer", "the reference", "the same", "x", "none", "null", "your answer here", "answer", ":",
    "Thought process:", "Final answer below:", "Error: division by zero", "Traceback (most recent call last):",
    "The answer is: I don't know", r"\boxed{x}", "<answer>see above</answer>",
]  # fmt: skip


def problem(*answers: str, domain: Domain = "math", unanswerable: bool = False) -> Problem:
    return Problem(Question("p", "How many?", domain), Reference(answers, unanswerable=unanswerable))


@pytest.mark.parametrize("said", NOTHING)
@pytest.mark.parametrize(("gold", "domain"), [("12", "math"), (r"\frac{1}{2}", "math"), ("Marie Curie", "qa")])
async def test_a_judge_that_says_true_to_everything_cannot_be_paid_with_words(
    said: str, gold: str, domain: Domain
) -> None:
    for config in (HYBRID, ALONE):
        verdict = await Judge(config, ScriptedModel(TRUE)).verdict(problem(gold, domain=domain), said)
        assert (verdict.correct, verdict.tier) == (False, "rules")


@pytest.mark.parametrize(
    ("said", "gold", "domain"),
    [
        ("yes", "no", "qa"),
        ("No", "yes", "qa"),
        ("yes", "Yes, both of them", "qa"),
        ("y", "x", "math"),
        ("C", "B", "qa"),
        ("B", r"\text{(B)}", "math"),
        ("unknown", "not known", "qa"),
        ("both", "yes", "qa"),
        ("above", "below", "qa"),
        ("none", "x", "math"),
    ],
)
async def test_a_word_is_an_answer_where_the_right_one_is_of_its_kind(said: str, gold: str, domain: Domain) -> None:
    model = ScriptedModel(FALSE)
    verdict = await Judge(ALONE, model).verdict(problem(gold, domain=domain), said)
    assert verdict.tier == "llm" and len(model.asked) == 1


@pytest.mark.parametrize("said", ["I don't know", "It cannot be answered", "unknown"])
async def test_where_there_is_no_answer_the_model_decides_who_does_not_know(said: str) -> None:
    model = ScriptedModel(TRUE)
    verdict = await Judge(HYBRID, model).verdict(problem(domain="qa", unanswerable=True), said)
    assert verdict.correct is True
    assert (await Judge(HYBRID, model).verdict(problem(domain="qa", unanswerable=True), "see above")).correct is False


@pytest.mark.parametrize(
    "said",
    [
        "12", "a dozen", "No Way Out", "The Unknown Soldier", "True Blood", "yes, the Normans", "Right Said Fred", "xy",
        "x + 1", "I Know What You Did Last Summer", "Error", "Above Suspicion", "12 errors: too many", "K2",
        "Percent error: 5", "Standard error: 1.2",
    ],
)  # fmt: skip
def test_an_answer_that_only_looks_like_one_is_none(said: str) -> None:
    assert non_answer(said) is None
    assert refused((said,), ("Marie Curie",)) is None


async def test_an_answer_cut_off_is_marked_for_the_model_and_not_mined_by_the_rules() -> None:
    model = ScriptedModel([FALSE, FALSE])
    judge = Judge(HYBRID, model)
    assert (await judge.verdict(problem("7"), "First 5 + 2 = 7")).correct is True
    verdict = await judge.verdict(problem("7"), "First 5 + 2 = 7", cut_off=True)
    assert (verdict.correct, verdict.tier) == (False, "llm")
    assert "cut off" in model.asked[0]["prompt"]
    assert (await judge.verdict(problem("7"), "The answer is 7", cut_off=True)).tier == "llm"  # of 72 perhaps
    stated = await judge.verdict(problem("7"), r"It is \boxed{7} since 5 + 2 makes", cut_off=True)
    assert (stated.correct, stated.tier) == (True, "rules")


def test_an_answer_is_cut_off_where_it_is_the_end_of_a_reply_that_was() -> None:
    def run(answer: str, *replies: tuple[str, str]) -> bool:
        calls = tuple(
            OperatorCall("Custom", {}, {"response": text}, (Exchange("p", text, finish, 1, 1, 0.0, 0.0),))
            for text, finish in replies
        )
        return Execution("finished", answer, calls).cut_off

    assert run("First 5 + 2 = 7", ("First 5 + 2 = 7", "length"))
    assert run("5 + 2 = 7", ("<answer>5 + 2 = 7 ", "length"))
    assert not run("First 5 + 2 = 7", ("First 5 + 2 = 7", "stop"))
    assert not run("7", ("First 5 + 2 = 7", "length"), ("7", "stop"))
    assert not run("12", ("First 5 + 2 = 7", "length"))
    assert not run("", ("", "length"))


@pytest.mark.parametrize(
    ("said", "domain", "asked"),
    [
        ("The answer is definitely not 12", "math", False),
        (r"\boxed{12} is wrong", "math", False),
        ("The answer is 12\n\nNo, that is wrong. I have no other.", "math", False),
        (r"the answer is not \boxed{12}", "math", False),
        ("The answer is not 13", "math", True),
        ("The answer is a dozen", "math", True),
        ("13 is wrong, a dozen", "math", True),
    ],
)
async def test_who_denies_the_right_answer_is_wrong_without_asking(said: str, domain: Domain, asked: bool) -> None:
    model = ScriptedModel(TRUE)
    verdict = await Judge(ALONE, model).verdict(problem("12", domain=domain), said)
    assert verdict.correct is asked and bool(model.asked) is asked
