"""Hostile answers: none makes the rules raise, takes the host much time, or makes another answer wait."""

import asyncio
import threading

import pytest
from helpers.judging import FALSE, HYBRID, ScriptedModel
from helpers.tables import tables
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.answers import algebra
from llm_as_judge.answers.equivalence import compare, matches
from llm_as_judge.answers.extraction import extract_answer
from llm_as_judge.judging.judge import RULES_ONLY, Judge
from llm_as_judge.types import Domain, Problem, Question, Reference

TABLES = tables(__file__)

CRASHERS = [
    "(" * 900 + "1" + ")" * 900, "[" * 800 + "1" + "]" * 800, "{" * 800 + "1" + "}" * 800, "a=b=" * 400, "x = " * 500,
    "\\{" * 800 + "1" + "\\}" * 800, "x∈" * 400 + "1", "1∪" * 500 + "1", "<answer>answer is " * 1000, "-" * 390 + "1",
    "\\boxed{" * 1000 + "5" + "}" * 1000, "\\sqrt" * 80 + "2", "f(" * 190 + "x" + ")" * 190, "2^" * 190 + "2",
    "1," * 900 + "1", "1 and " * 300 + "1", "9!" * 100, "(a)" * 99 + "= x \\boxed{8}",
    "1e999", "1e-999", "\ud800", "\x00", "٣", "9^9^9^9^9",
]  # fmt: skip
FRAGMENTS = TABLES["FRAGMENTS"]
DOMAINS: tuple[tuple[Domain, tuple[str, ...]], ...] = (
    ("math", ("12", "x=1, y=2", r"\frac{1}{2}", "(0,1)")),
    ("qa", ("Paris", "12", "B", "yes")),
)


def problem(domain: Domain, answers: tuple[str, ...], question: str = "What percent of 5 km is it?") -> Problem:
    return Problem(Question("p", question, domain), Reference(answers))


async def test_no_answer_makes_a_judge_raise() -> None:
    for answer in CRASHERS:
        for domain, references in DOMAINS:
            for judge in (Judge(RULES_ONLY), Judge(HYBRID, ScriptedModel(FALSE))):
                assert (await judge.verdict(problem(domain, references), answer)).correct is False, answer[:20]


@settings(max_examples=100)
@given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=6), max_size=40), st.integers(1, 60))
def test_no_mixture_of_fragments_makes_the_rules_raise(parts: list[str], times: int) -> None:
    answer = "".join(parts) * times
    for domain, references in DOMAINS:
        for question in ("", "?", "How many of the 12 are in Paris?"):
            assert compare(answer, references, domain, question, effort_s=0.2) in ("same", "undecided", "unproved")
        extract_answer(answer, domain)


async def test_hard_formulas_do_not_keep_an_honest_answer_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all algebra processes busy, an answer that needs none is judged at once."""
    released, asked = threading.Event(), []

    def blocked(self: object, request: object, cpu_s: float) -> tuple[bool, float]:
        asked.append(request)
        assert released.wait(60)
        return True, 0.1

    monkeypatch.setattr(algebra._Worker, "ask", blocked)
    judge = Judge(RULES_ONLY)
    hard = [
        asyncio.create_task(judge.verdict(problem("math", (f"x^2+{2 * n}x+{n * n}",), ""), f"(x+{n})^2"))
        for n in range(200, 208)
    ]
    for _ in range(1000):
        await asyncio.sleep(0.005)
        if len(asked) == algebra.WORKERS:
            break
    assert len(asked) == algebra.WORKERS
    assert (await asyncio.wait_for(judge.verdict(problem("math", ("12",)), "The answer is 12."), 30)).correct is True
    assert not any(task.done() for task in hard)
    released.set()
    assert [verdict.correct for verdict in await asyncio.gather(*hard)] == [True] * 8


def test_all_proofs_of_one_answer_have_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    given_s: list[float] = []

    def undecided(self: object, request: object, cpu_s: float) -> tuple[None, float]:
        given_s.append(cpu_s)
        return None, cpu_s

    monkeypatch.setattr(algebra._Worker, "ask", undecided)
    golds = [f"x^2+{2 * n}x+{n * n}" for n in range(300, 330)]
    assert compare("(x+300)^2", [golds[0], *(f"{gold}+y-y" for gold in golds[:1] * 9)], "math") == "unproved"
    assert 0 < sum(given_s) <= algebra.EFFORT_CPU_S


def test_a_proof_that_took_all_its_time_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(algebra._Worker, "ask", lambda *question: asked.append(question) or (None, 2.0))
    for _ in range(3):
        assert not matches("(x+991)^2", ["x^2+1982x+982081"], "math")
    assert len(asked) == 1
