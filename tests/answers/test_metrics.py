"""The usual scorers of the benchmarks, and the judge that uses them.

The verdicts on GSM8K and MATH are those of lm-evaluation-harness 0.4.13 on these replies.
"""

import logging
from collections.abc import Sequence

import pytest

from llm_as_judge.answers import algebra, metrics
from llm_as_judge.answers.metrics import scores
from llm_as_judge.errors import InfrastructureError
from llm_as_judge.judging.judge import OFFICIAL, Judge
from llm_as_judge.types import Problem, Question, Reference

MATH_VERIFY = pytest.mark.skipif(not metrics.verifies_math(), reason="needs pip install 'llm-as-judge[math]'")
OPTIONS = "Which vitamin prevents scurvy?\nA. Vitamin A\nB. Vitamin B12\nC. Vitamin C\nD. None of them"


def of(dataset: str, *golds: str, text: str = "?", unanswerable: bool = False) -> Problem:
    domain = "math" if dataset in ("gsm8k", "math", "own") else "qa"
    return Problem(Question("q", text, domain, dataset=dataset), Reference(golds, unanswerable=unanswerable))


async def test_gsm8k_takes_the_last_number_and_reports_the_strict_filter_beside_it() -> None:
    wrong = []
    for reply, gold, flexible, strict in (
        ("22", "22", 1, 0),
        ("Therefore, Dorothy's profit is $22.", "22", 1, 0),
        ("5 * 4 = 20\n#### 20", "20", 1, 1),
        ("#### 20\nThat took 3 steps.", "20", 0, 1),
        ("#### 1,234.", "1234", 1, 1),
        ("It is 1,234 dollars", "1234", 1, 0),
        ("The cost is $22.00", "22", 0, 0),
        ("x = -7", "-7", 1, 0),
        ("x = -7", "7", 0, 0),
        ("#### $22", "22", 1, 0),
        (r"\boxed{22}", "22", 1, 0),
        (r"So it is $\boxed{22}$.", "22", 1, 0),
        ("It is 22...", "22", 0, 0),
        ("first 22, then 23", "22", 0, 0),
        ("none", "22", 0, 0),
        ("", "22", 0, 0),
    ):
        verdict = await Judge(OFFICIAL).verdict(of("gsm8k", gold), reply)
        expected = {"flexible-extract": flexible, "strict-match": strict}
        if (verdict.correct, verdict.tier, verdict.scores) != (bool(flexible), "metric", expected):
            wrong.append((reply, verdict))
    assert not wrong


@MATH_VERIFY
async def test_math_takes_the_last_box_or_the_final_expression() -> None:
    wrong = []
    for reply, gold, right in (
        (r"We get $\boxed{\frac{1}{2}}$.", "0.5", True),
        (r"So $\boxed{3}$. No: $\boxed{4}$.", "4", True),
        (r"So $\boxed{4}$. No: $\boxed{3}$.", "4", False),
        ("Hence the result equals 12.", "12", True),
        ("$x = 12$", "12", True),
        ("The answer is 20%.", "20", True),
        (r"$\boxed{(1, 2)}$", "(1,2)", True),
        (r"$\boxed{[1, 2]}$", "(1,2)", False),
        (r"$\boxed{2516}$", "2516_8", True),
        ("We are done.", "12", False),
        ("x**2 + 3*x", "x^2+3x", True),
        ("x**2 - 3*x", "x^2+3x", False),
        ("(4, -1)", r"(4,-1)", True),
        ("(-1, 4)", r"(4,-1)", False),
        ("-oo", r"-\infty", True),
        ("oo", r"-\infty", False),
        ("infinity", r"\infty", True),
        ("2.5e4", r"2.5 \times 10^4", True),
        ("2.5e-4", r"2.5 \times 10^4", False),
        ("3*log(5)", r"3\ln 5", True),
        (r"3\log(5)", r"3\ln 5", False),
        ("", "12", False),
    ):
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


def test_multiple_choice_is_judged_by_the_letter_that_is_stated_and_not_denied() -> None:
    wrong = []
    for reply, letter in (
        ("C", "C"), ("(C)", "C"), ("C.", "C"), ("C) Vitamin C", "C"), ("**C**", "C"), (r"\boxed{\text{C}}", "C"),
        ("The answer is C because scurvy is a lack of it.", "C"), ("Answer: (B)", "B"),
        ("A is wrong. The answer is option D.", "D"), ("Vitamin C", "C"), ("vitamin b12.", "B"),
        ("I first thought of (A), but it is (C)", "C"), ("<answer>C</answer>", "C"), ("It must be C", "C"),
        ("The answer is A. No, the answer is B.", "B"), ("A good question", ""), ("", ""), ("none of the above", ""),
        ("D) none of them", "D"), ("The answer is (D) None of them", "D"), ("It is most likely B", "B"),
        ("I choose B since it cannot be A", "B"), ("Option B is correct.", "B"), ("Not A, B or D, so C", "C"),
        ("The answer is B, not A.", "B"), ("It isn't A or D but B", "B"), ("No, it's B.", "B"), ("B. Not A.", "B"),
        ("The one that does not fit is B.", "B"), ("I do not know, but the answer is B", "B"), ("B.", "B"),
        ("The answer is not B", ""), ("not (B)", ""), ("It's not option B.", ""), ("The answer can\u2019t be B", ""),
        ("Neither A nor B", ""), ("I do not think that it is B", ""), ("None of them is B.", ""), ("B? No.", ""),
        ("The answer is never A, B, or D.", ""), ("It is not the case that the answer is B", ""), ("(B) is not it", ""),
        ("Everything but B", ""), ("I would rule out B", ""), ("(B) is wrong", ""), ("A, B and D are wrong", ""),
        (r"Scurvy needs \(\boxed{\textbf{(B)}}\), so:" "\n\n" r"\[ \boxed{\text{B}} \]", "B"), ("**Answer**: *D*", "D"),
        ("The answer is <answer>(D)</answer>.", "D"), (r"So the final answer is $\boxed{\mathrm{B}}$.", "B"),
        ("The answer is vitamin b12.", "B"), ("The answer is (d).", "D"), ("B \u2013 Vitamin B12", "B"),
        ("Vitamin B12 (B)", "B"), (r"\boxed{\text{vitamin b12}}", "B"), ("Answer: <i>B</i>", "B"), ("答案为D", "D"),
        ("The answer is A. Wait, sorry. It is B.", "B"), ("The answer is D. The least useful answer is A.", "D"),
        ("Incorrect answer: A\nAnswer: D", "D"), ("Answer: D\nThe worst answer: A", "D"), ("The answer is B, D", ""),
        ("The answer is D; at sea the answer is A.", ""), ("The answer is A if it is winter", ""), ("B; D", ""),
        ("If he had scurvy, the answer would be A.", ""), (r"\boxed{A} or else \boxed{D}", ""), ("Answers: B, C", ""),
        ("A is right and so is B.", ""), ("The false answer is D", ""), ("I refuse to pick A", ""), ("It is J", ""),
        ("This matches choice (B).", "B"), ("It leaves D.", "D"), ("B (Vitamin B12)", "B"), ("D is the most apt", "D"),
        ("Look at A:\n\nOption D: none of them\n\nIt has none.", "D"), ("It is indeed B", "B"), ("因此选择B", "B"),
        ("It leaves B in doubt.", ""), ("Nothing matches B.", ""), ("B is the most common mistake.", ""), ("不选B", ""),
        ("B is most surely wrong.", ""), ("A matches; B doesn't.", ""), ("Option B (Vitamin B12) is wrong.", ""),
        ("The answer is A or B", ""), ("B - no", ""), ("I reject answer B", ""), ("Is the answer B?", ""),
    ):  # fmt: skip
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
    none, paris = of("squad2", unanswerable=True), of("squad2", "Paris", "in Paris")
    cases: Sequence[tuple[Problem, str | None, bool, float]] = (
        (none, "", True, 1), (none, "No answer", True, 1), (none, "It cannot be answered from the text.", True, 1),
        (none, "The question cannot be answered based on the given context", True, 1), (none, "I don't know", True, 1),
        (none, "The passage does not mention who won.", True, 1), (none, "not in Paris", False, 0),
        (none, "There was no answer in the article.", True, 1), (none, "Not specified", True, 1),
        (none, r"\boxed{\text{No answer}}", True, 1), (none, "From the text, it cannot be answered", True, 1),
        (none, "The answer is not in the text.", True, 1), (paris, "### Answer\n**Paris**", True, 1),
        (paris, "The answer to the question is Paris.", True, 1),
        (none, "I am not certain but Oslo", False, 0), (none, "It does not say Oslo it says Rome", False, 0),
        (none, "we cannot say it was not Oslo", False, 0), (none, "I don't doubt Oslo", False, 0),
        (of("squad2", text="Which treaty was it?", unanswerable=True), "The treaty is not mentioned.", True, 1),
        (paris, r"\boxed{\text{Paris}}", True, 1),
        (none, "The passage says that Ann did not win", False, 0), (of("squad2", "unknown"), "Unknown", True, 1),
        (none, "Paris", False, 0), (none, None, False, 0),
        (paris, "", False, 0), (paris, "the Paris.", True, 1), (paris, "Paris, France", False, 2 / 3),
        (of("hotpotqa", "yes"), "Yes.", True, 1), (of("hotpotqa", "John Smith"), "Smith", False, 2 / 3),
    )  # fmt: skip
    for problem, answer, right, f1 in cases:
        verdict = await Judge(OFFICIAL).verdict(problem, answer)
        assert (verdict.correct, verdict.tier) == (right, "metric"), (problem, answer)
        assert verdict.scores["f1"] == pytest.approx(f1)
