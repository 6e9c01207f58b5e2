"""The usual scorers of the benchmarks, and the judge that uses them.

The verdicts on GSM8K and MATH are those of lm-evaluation-harness 0.4.13 on these replies.
"""

import logging

import pytest
from helpers.tables import tables

from llm_as_judge.answers import algebra, metrics
from llm_as_judge.answers.metrics import scores
from llm_as_judge.config.endpoints import JudgeConfig
from llm_as_judge.errors import InfrastructureError
from llm_as_judge.judging.judge import OFFICIAL, Judge
from llm_as_judge.types import Problem, Question, Reference

TABLES = tables(__file__)

MATH_VERIFY = pytest.mark.skipif(not metrics.verifies_math(), reason="needs pip install 'llm-as-judge[math]'")
OPTIONS = "Which vitamin prevents scurvy?\nA. Vitamin A\nB. Vitamin B12\nC. Vitamin C\nD. None of them"


def of(dataset: str, *golds: str, text: str = "?", unanswerable: bool = False) -> Problem:
    domain = "math" if dataset in ("gsm8k", "math", "own") else "qa"
    return Problem(Question("q", text, domain, dataset=dataset), Reference(golds, unanswerable=unanswerable))


async def test_gsm8k_takes_the_last_number_and_reports_the_strict_filter_beside_it() -> None:
    wrong = []
    for reply, gold, flexible, strict in TABLES["last number"]:
        verdict = await Judge(OFFICIAL).verdict(of("gsm8k", gold), reply)
        expected = {"flexible-extract": flexible, "strict-match": strict}
        if (verdict.correct, verdict.tier, verdict.scores) != (bool(flexible), "metric", expected):
            wrong.append((reply, verdict))
    assert not wrong


@MATH_VERIFY
async def test_math_takes_the_last_box_or_the_final_expression() -> None:
    wrong = []
    for reply, gold, right in TABLES["last box"]:
        verdict = await Judge(OFFICIAL).verdict(of("math", gold), reply)
        if (verdict.correct, verdict.tier) != (right, "metric"):
            wrong.append((reply, gold, verdict))
    assert not wrong
    assert scores("math", r"$\boxed{7}$", of("math").question, Reference(("6", "7"))) == {"math_verify": 1}


@MATH_VERIFY
def test_a_reply_that_math_verify_cannot_finish_is_wrong_and_the_next_one_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(algebra, "VERIFY_CPU_S", 1.0)
    assert algebra.verified(r"$\boxed{10000000!}$", ["3"]) is False
    assert next(reversed(algebra._idle.queue)).process is None, "its process was ended"
    assert algebra.verified(r"$\boxed{12}$", ["12"]) is True


class Broken(algebra._Worker):
    def _start(self) -> None:
        raise OSError("no memory left")


async def test_a_broken_algebra_process_leaves_an_answer_unscored(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = algebra.queue.LifoQueue[algebra._Worker]()
    idle.put(Broken())
    monkeypatch.setattr(algebra, "_idle", idle)
    monkeypatch.setattr(metrics, "verifies_math", lambda: True)
    with pytest.raises(InfrastructureError, match="no memory left"):
        scores("math", "12", of("math").question, Reference(("12",)))
    verdict = await Judge(OFFICIAL).verdict(of("math", "12"), "12")
    assert (verdict.correct, verdict.tier) == (None, "metric") and not verdict.abstained


async def test_without_a_usual_scorer_the_rules_decide_and_the_tier_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics, "find_spec", lambda name: None)
    metrics.verifies_math.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            for dataset in ("math", "own", "math"):
                verdict = await Judge(OFFICIAL).verdict(of(dataset, "1/2"), r"It is $\boxed{\frac12}$.")
                assert (verdict.correct, verdict.tier, verdict.scores) == (True, "rules", {})
    finally:
        metrics.verifies_math.cache_clear()
    (warning,) = caplog.messages
    assert "pip install 'llm-as-judge[math]'" in warning
    caplog.clear()
    judge = Judge(JudgeConfig(mode="metric"))
    for dataset, named in (("own", "dataset 'own' has"), ("", "without a dataset"), ("own", "")):
        await judge.verdict(of(dataset, "1"), "1")
        assert named in caplog.text and "their field 'dataset'" in caplog.text and len(caplog.messages) < 3


def test_multiple_choice_is_judged_by_the_letter_that_is_stated_and_not_denied() -> None:
    wrong = []
    for reply, letter in TABLES["letters"]:
        if metrics.chosen_letter(reply, OPTIONS) != letter:
            wrong.append((reply, metrics.chosen_letter(reply, OPTIONS)))
    for reply, letter in (
        ("7", "B"), (r"$\boxed{7}$", "B"), ("The answer is 7.", "B"), ("n = 7", "B"), ("The answer is 7.5", ""),
        ("-7", ""), ("The answer is -7", ""), ("The answer is A and B", "D"), ("The least likely is A", "A"),
    ):  # fmt: skip
        if metrics.chosen_letter(reply, "Which is the least likely n?\nA. 1\nB. 7\nC. A\nD. A and B") != letter:
            wrong.append((reply, letter))
    assert not wrong
    golds = ("C", "C. Vitamin C", "Vitamin C")
    for dataset in ("mmlu", "commonsenseqa"):
        judged = of(dataset, *golds, text=OPTIONS)
        assert scores("choice", "So the answer is C.", judged.question, judged.reference) == {"accuracy": 1}
        assert scores("choice", "So the answer is A.", judged.question, judged.reference) == {"accuracy": 0}


async def test_reading_questions_are_right_by_exact_match_and_an_empty_answer_where_there_is_none() -> None:
    for golds, more, answer, right, f1 in TABLES["reading"]:
        problem = of(*golds, **more)
        verdict = await Judge(OFFICIAL).verdict(problem, answer)
        assert (verdict.correct, verdict.tier) == (right, "metric"), (problem, answer)
        assert verdict.scores["f1"] == pytest.approx(f1)
