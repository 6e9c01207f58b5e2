"""The tiers of a verdict, its requests, and faults of the LLM judge."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from helpers.judging import ALONE, FALSE, HYBRID, TRUE, ScriptedModel, asked, problem
from helpers.misbehaving import REQUESTS, VERDICT, Misbehaving
from helpers.tables import tables
from helpers.web import Handler, completion, serving

from llm_as_judge.answers.equivalence import matches
from llm_as_judge.config.endpoints import EndpointConfig, JudgeConfig
from llm_as_judge.errors import ConfigError, ProviderError, SandboxFault
from llm_as_judge.judging.judge import OFFICIAL, RULES_ONLY, Judge
from llm_as_judge.judging.llm_judge import LLMJudge
from llm_as_judge.judging.prompts import JUDGE_SYSTEM, build_prompt, load_lines
from llm_as_judge.llm.client import LLMClient
from llm_as_judge.sandbox.results import CodeVerdict
from llm_as_judge.types import Problem, Question, Reference, Verdict


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
    for text, message in (("- gsm8k", r"judge\.prompts: "), ("gsm8k: 2024-99-99", "not valid YAML")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=message):
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


TABLES = tables(__file__)

PROBLEM = Problem(Question("p", "How many?", "math", dataset="gsm8k"), Reference(("12",)))
_names = count()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(Misbehaving) as address:
        yield address


async def judged(
    server: str, behaviour: str, config: JudgeConfig = HYBRID, *, times: int = 1, **settings: Any
) -> tuple[Verdict, list[dict[str, Any]]]:
    """The last verdict on an answer that only a model can judge, and the requests for all."""
    name = f"m{next(_names)}"
    settings = {"timeout_s": 1.0, "max_retries": 2, **settings}
    async with LLMClient(EndpointConfig(base_url=server, model=f"{name}/{behaviour}", **settings)) as llm:
        judge = Judge(config, llm)
        verdicts = [await judge.verdict(PROBLEM, "a baker's dozen less one") for _ in range(times)]
    return verdicts[-1], REQUESTS[name]


PASSING = (
    "true busy+true broken+broken+true silent+true hang_up+true drip+true truncated_body+true empty_length+true "
    "cut_verdict+true truncated_verdict+true reasoning_only+true wrong_word+true"
).split()
LASTING = {
    "busy": "HTTP 429", "broken": "HTTP 500", "silent": "timeout_s", "drip": "timeout_s", "hang_up": "broke off",
    "truncated_body": "not JSON", "unauthorised": "check api_key", "empty_length": "cut off", "cut_verdict": "cut off",
    "truncated_verdict": "no verdict", "reasoning_only": "an empty reply", "wrong_word": "no verdict",
    "too_long": "context",
}  # fmt: skip


async def test_after_a_passing_fault_the_verdict_is_given(server: str) -> None:
    results = await asyncio.gather(*(judged(server, behaviour) for behaviour in PASSING))
    found = {name: (v.correct, v.tier, len(asked)) for name, (v, asked) in zip(PASSING, results, strict=True)}
    assert found == {name: (True, "llm", name.count("+") + 1) for name in PASSING}
    assert (await judged(server, "false"))[0].correct is False
    retried = results[PASSING.index("busy+true")][1]
    assert retried[1]["at"] - retried[0]["at"] >= 0.95, "Retry-After"


async def test_a_lasting_fault_leaves_the_answer_unscored_with_its_reason(server: str) -> None:
    results = await asyncio.gather(*(judged(server, name, max_retries=1) for name in LASTING))
    reasons = {name: (v.correct, v.abstained, v.reason) for name, (v, _) in zip(LASTING, results, strict=True)}
    wrong = [name for name, found in reasons.items() if found[:2] != (None, True) or LASTING[name] not in found[2]]
    assert not wrong, reasons


class _Short(Handler):
    """A judge that reads 700 characters in all, and rambles on over more than 400 of the candidate's."""

    def do_POST(self) -> None:
        prompt = json.loads(self.raw())["messages"][-1]["content"]
        candidate = prompt.partition("Candidate: ")[2].partition("\n")[0]
        if "tabu" in candidate:
            self.send(400, "this request was flagged")
        elif "crash" in candidate:
            self.send(500, "the tokenizer failed")
        elif "mute" in candidate or "secret" in candidate:
            self.send(200, completion(None, "content_filter" if "secret" in candidate else "stop"))
        elif len(prompt) > 700 or "everything" in prompt:
            self.send(400, "the prompt is longer: this model reads at most 700 tokens")
        elif len(candidate) < 400:
            self.send(200, completion(VERDICT.format(candidate.endswith("dozen"))))
        else:
            self.send(200, completion("...", "length"))


async def test_no_answer_makes_itself_unscored_by_its_length_or_its_words() -> None:
    wrong = []
    with serving(_Short) as address:
        async with LLMClient(EndpointConfig(base_url=address, max_retries=0)) as llm:
            judge = Judge(HYBRID, llm)
            for before, times, end, right in TABLES["answers"]:
                verdict = await judge.verdict(PROBLEM, answer := before * times + end)
                if verdict.correct is not right:
                    wrong.append((answer[-20:], verdict.correct, verdict.reason))
            ours = replace(PROBLEM, question=replace(PROBLEM.question, text="everything " * 90))
            verdict = await judge.verdict(ours, "a dozen")
            assert verdict.correct is None and "700 tokens" in verdict.reason, "the question is too long"
    assert not wrong


async def test_a_server_without_schemas_is_asked_plainly_and_only_once_refuses(server: str) -> None:
    structured = asked(structured=True)
    verdict, requests = await judged(server, "no_schema", structured)
    assert verdict.correct is True
    assert ["response_format" in request for request in requests] == [True, False]
    for behaviour, times in (("schema", 1), ("too_long+schema", 2)):  # too long a prompt is no refusal of schemas
        verdict, requests = await judged(server, behaviour, structured, times=times)
        assert verdict.correct is True
        assert requests[-1]["response_format"]["json_schema"]["schema"]["required"] == ["analysis", "true_false"]


async def test_a_request_has_the_datasets_line_and_the_judges_temperature(server: str) -> None:
    _, requests = await judged(server, "true")
    system = requests[0]["messages"][0]
    assert system["role"] == "system" and "one number" in system["content"] and requests[0]["temperature"] == 0
    config = asked(provider="embedded", temperature=0.4)
    _, requests = await judged(server, "true", config, temperature=0.4)
    assert [[m["role"] for m in r["messages"]] for r in requests] == [["user"]], "no system prompt"
    assert [request["temperature"] for request in requests] == [0.4]
