"""The tiers of the judge and the LLM judge's prompt and parser."""

from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from helpers.judging import ALONE, FALSE, HYBRID, TRUE, ScriptedModel, asked, problem

from llm_as_judge.answers.equivalence import matches
from llm_as_judge.errors import ConfigError, ProviderError, SandboxFault
from llm_as_judge.judging.judge import OFFICIAL, RULES_ONLY, Judge
from llm_as_judge.judging.llm_judge import LLMJudge
from llm_as_judge.judging.prompts import JUDGE_SYSTEM, build_prompt, load_lines
from llm_as_judge.sandbox.results import CodeVerdict
from llm_as_judge.types import Problem, Question, Reference


def sandbox(passed: bool = False, outcome: Any = "finished", **fields: Any) -> Any:
    """A sandbox whose verdict is always this one."""
    return AsyncMock(verdict=AsyncMock(return_value=CodeVerdict(passed, outcome, "split", **fields)))


CODE = Problem(
    Question("c", "Write f.", "code", entry_point="f", prelude="import math"), Reference(tests="assert f() == 1")
)


async def test_rules_say_yes_the_model_decides_the_rest_and_no_answer_is_wrong() -> None:
    # The judge tier, unplugged: without rules the model is asked, without the model its answers are refused.
    for mode, said, reply, correct, tier in (
        ("hybrid", "The answer is 12.0", None, True, "rules"), ("hybrid", "a dozen", TRUE, True, "llm"),
        ("hybrid", "a dozen", FALSE, False, "llm"), ("llm", "12", FALSE, False, "llm"),
        ("rules", "a dozen", None, False, "rules"),
    ):  # fmt: skip
        model = ScriptedModel([] if reply is None else [reply])
        verdict = await Judge(asked(mode=mode), model).verdict(problem("12"), said)
        assert (verdict.correct, verdict.tier, len(model.asked)) == (correct, tier, reply is not None), (mode, said)
        assert all(said in request["prompt"] and request["system"] == JUDGE_SYSTEM for request in model.asked)
    with pytest.raises(ConfigError, match=r"judge\.mode=rules"):
        Judge(HYBRID)
    judge = Judge(HYBRID, ScriptedModel([]))
    nothing = problem(domain="qa", unanswerable=True)
    for answer in (None, "", "  \n"):
        for judged in (problem("12"), CODE):
            verdict = await judge.verdict(judged, answer)
            assert (verdict.correct, verdict.tier) == (False, "rules")
    for answer in ("", "Unanswerable.", "no answer"):
        right = await judge.verdict(nothing, answer)
        assert (right.correct, right.tier) == (True, "rules")
        wrong = await Judge(RULES_ONLY).verdict(problem("Normans", domain="qa"), answer)
        assert wrong.correct is False
    assert (await Judge(RULES_ONLY).verdict(nothing, None)).correct is False


async def test_official_boxes_are_by_the_datasets_own_rule() -> None:
    # Also where there is no usual scorer; in other modes such a reply is undecided and the model decides.
    boxed = r"There are $\boxed{12}$ paths that avoid the wall. (We could also have counted them one by one.)"
    of = Problem(Question("q", "How many paths are there?", "math"), Reference(("12",)))
    for reply in (boxed, "How many are left?\n#### 12"):
        assert (await Judge(OFFICIAL).verdict(of, reply)).correct is True
        assert (await Judge(RULES_ONLY).verdict(of, reply)).correct is False
        assert matches(reply, ["12"], "math", of.question.text) is False


async def test_code_is_judged_by_its_tests_alone_and_a_sandbox_fault_is_unscored() -> None:
    tests = sandbox(True, weak=True)
    verdict = await Judge(ALONE, ScriptedModel([]), tests).verdict(CODE, "```python\ndef f():\n    return 1\n```")
    assert (verdict.correct, verdict.tier) == (True, "tests") and "weak" in verdict.reason
    tests.verdict.assert_awaited_once_with("def f():\n    return 1", "assert f() == 1", "f", prelude="import math")
    for given, correct in (
        (sandbox(outcome="raised", error="AssertionError"), False), (sandbox(outcome="timeout"), False),
        (sandbox(outcome="fault"), None), (AsyncMock(verdict=AsyncMock(side_effect=SandboxFault("zygote gone"))), None),
    ):  # fmt: skip
        verdict = await Judge(RULES_ONLY, None, given).verdict(CODE, "def f(): ...")
        assert (verdict.correct, verdict.tier) == (correct, "tests")
    assert (await Judge(RULES_ONLY).verdict(CODE, "def f(): ...")).correct is None
    given = sandbox(outcome="raised", error="ModuleNotFoundError: No module named 'concurrent.futures.thread'")
    assert "sandbox has no" in (await Judge(RULES_ONLY, None, given).verdict(CODE, "def f(): ...")).reason


async def test_retries_differ_and_a_disagreement_abstains() -> None:
    for first in ("I think they are equal", (TRUE, "length"), ""):
        model = ScriptedModel([first, TRUE])
        judge = LLMJudge(asked(provider="embedded", max_tokens=100), model)
        assert (await judge.decide("q", ["12"], "a dozen")).correct is True
        one, two = model.asked
        assert (one["temperature"], one["max_tokens"], one["system"]) == (0.0, 100, None)
        assert (two["temperature"], two["max_tokens"]) == (0.3, 200) and two["prompt"] != one["prompt"]
    cases: list[tuple[list[Any], list[Any], bool | None]] = [
        ([TRUE], [TRUE], True), ([TRUE], [FALSE], None), ([FALSE], [], False), ([TRUE], [ProviderError("x")], None),
    ]  # fmt: skip
    for first, second, correct in cases:
        judge = LLMJudge(HYBRID, ScriptedModel(first), ScriptedModel(second))
        assert (await judge.decide("q", ["12"], "a dozen")).correct is correct


def test_the_prompt_is_the_documented_one_and_a_file_replaces_its_lines(tmp_path: Path) -> None:
    assert build_prompt("2+2?", ["4", "four", "4"], "IV") == (
        "Question: 2+2?\nReference: 4 or four\nCandidate: IV\n"
        "Is the candidate the same answer as the reference?\n"
        "Reply: <analysis>reference vs candidate</analysis><true_false>True or False</true_false>"
    )
    prompt = build_prompt(r"\frac{1}{2} {reference}", ["{candidate}"], "{question}")
    assert r"Question: \frac{1}{2} {reference}" in prompt and "Candidate: {question}" in prompt, "data is text"
    path = tmp_path / "prompts.yaml"
    path.write_text("gsm8k: Only the number.\nmine: Mine.\n", encoding="utf-8")
    lines = load_lines(path)
    assert (lines["gsm8k"], lines["mine"]) == ("Only the number.", "Mine.")
    assert "math" in lines
    path.write_text("- gsm8k\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"judge\.prompts"):
        load_lines(path)


async def test_all_requests_of_a_verdict_are_held() -> None:
    model, second = ScriptedModel(["well", TRUE]), ScriptedModel([FALSE])
    judge = Judge(asked(), model, second=second)
    verdict = await judge.verdict(problem("12"), "it is a dozen")
    assert verdict.correct is None
    assert [e.reply for e in verdict.exchanges] == ["well", TRUE, FALSE]
    assert [e.prompt for e in verdict.exchanges] == [r["prompt"] for r in model.asked + second.asked]
    assert {(e.prompt_tokens, e.completion_tokens) for e in verdict.exchanges} == {(1, 1)}
    by_rules = await judge.verdict(problem("12"), "12")
    assert by_rules.tier == "rules" and by_rules.exchanges == ()
