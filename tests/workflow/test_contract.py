"""The rules of the full prompt against lint and the sandbox: what a rule allows passes and runs, and some rule forbids
whatever lint reports.
"""

import re
from dataclasses import replace

from helpers.tables import tables
from helpers.workflows import CODE, QUESTION, linted, workflow
from running import Run

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.operators.catalog import OPERATORS, load_operators
from llm_as_judge.rl.rollout import extract_code
from llm_as_judge.types import DOMAINS
from llm_as_judge.workflow.contract import FENCED_PREFILL, RULES, contract, skeleton
from llm_as_judge.workflow.lint.codes import CODES
from llm_as_judge.workflow.prompt import Layer1
from llm_as_judge.workflow.shapes import Example

CLAIMS = tables(__file__)


def source(
    body: str = "r = await self.answer(input=problem)\nreturn r['answer'], 0.0",
    init: str = "",
    *,
    own: bool = False,
    text: str = "",
    harmless: bool = False,
    **more: str,
) -> str:
    """A workflow of the table."""
    answer = "" if own else "self.answer = operator.AnswerGenerate(self.llm)\n"
    return text or workflow(body, init=answer + init, **more)


def test_every_rule_is_claimed_and_whatever_lint_reports_some_rule_forbids() -> None:
    assert [rule for rule, claim in zip(RULES, CLAIMS, strict=True) if not rule.startswith(claim["rule"])] == []
    assert {code for claim in CLAIMS for forbidden in claim.get("forbids", ()) for code in forbidden} == set(CODES)


def test_what_a_rule_allows_runs_and_what_it_forbids_is_found(run: Run) -> None:
    allowed = [source(**given) for claim in CLAIMS for given in claim["allows"]]
    runs = [(text, run(text, CODE if "entry_point" in text else QUESTION)) for text in allowed]
    assert not [pair for pair in runs if (pair[1].outcome, pair[1].error, pair[1].findings) != ("finished", "", ())]
    wrong = []
    for ((code, given),) in (forbidden.items() for claim in CLAIMS for forbidden in claim.get("forbids", ())):
        text = source(**given)
        found = {f.code for f in linted(text, entry_point="f" if code == "W107" else None)}
        failed = run(text, linted=False).outcome == "raised" or not CODES[code][1]
        if not {code} <= found <= {code, "W205"} or failed is given.get("harmless", False):
            wrong.append((code, found, text))
    assert not wrong


def test_the_contract_names_calls_and_forms_and_a_reply_may_be_begun(run: Run) -> None:
    assert "at most 7 calls" in contract(OPERATORS, 7)
    for names in (*([name] for name in OPERATORS), list(OPERATORS), ["Review", "Revise"]):
        operators = load_operators(names)
        source = skeleton(operators)
        assert linted(source, operators=operators) == [], names
        assert source in contract(operators, 24)
        assert run(source).outcome == "finished", names
    prompt = Layer1(WorkflowConfig(prefill=True))(QUESTION)
    assert prompt.prefill == FENCED_PREFILL and Layer1(WorkflowConfig())(QUESTION).prefill == ""
    (_, _, rest) = skeleton(OPERATORS).partition("create_llm_instance(llm_config)\n        self.")
    for ending in ("\n```", "\n```\nDone.", ""):
        assert extract_code(rest + ending, prompt.prefill).strip() == skeleton(OPERATORS)


def test_an_example_of_the_domain_or_experience_comes_before_the_problem(run: Run) -> None:
    for domain in DOMAINS:
        question = CODE if domain == "code" else replace(QUESTION, domain=domain)
        prompt = Layer1(WorkflowConfig())(question)
        ((request, reply),) = prompt.turns
        execution = run(extract_code(reply), question)
        assert (execution.outcome, execution.findings, len(execution.calls) > 1) == ("finished", (), True)
        assert request.startswith(f"Problem ({domain}): ") and request.splitlines()[-1] == prompt.user.splitlines()[-1]
        assert ("entry_point: " in request) is (domain == "code") is ("entry_point" in extract_code(reply))
    shown = Layer1(WorkflowConfig(operators=("Custom", "AnswerGenerate")))(QUESTION).turns[0][1]
    assert set(re.findall(r"operator\.(\w+)", shown)) == {"AnswerGenerate"}
    assert Layer1(WorkflowConfig(operators=("Review",)))(QUESTION).turns == ()
    examples = [Example("2+2?", "class Workflow: pass # a\n"), Example("3+3?", "class Workflow: pass # b\n")]
    prompt = Layer1(WorkflowConfig())(replace(CODE, context="Some facts."), examples)
    assert [reply for _, reply in prompt.turns] == [f"```python\n{e.workflow.strip()}\n```" for e in examples]
    assert ["2+2?" in prompt.turns[0][0], "3+3?" in prompt.turns[1][0]] == [True, True]
    assert prompt.user.startswith("Problem (code): Context: Some facts.\nQuestion: Square a number.\nentry_point: f\n")
    assert prompt.user.endswith("Write the workflow. The answer is the source of the function entry_point.")
    assert "assert f(2) == 4" not in f"{prompt}"
