"""The rules of the full prompt against lint and the sandbox: what a rule allows passes and runs, and some rule forbids
whatever lint reports.
"""

# ruff: noqa: E501 (a workflow a line)
import re
from dataclasses import dataclass, replace

from helpers.workflows import CODE, QUESTION, linted, workflow
from running import Run

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.operators.catalog import OPERATORS, load_operators
from llm_as_judge.rl.rollout import extract_code
from llm_as_judge.types import DOMAINS
from llm_as_judge.workflow.contract import HEAD, RULES, contract, skeleton
from llm_as_judge.workflow.lint.codes import CODES
from llm_as_judge.workflow.prompt import Layer1
from llm_as_judge.workflow.shapes import Example

ANSWER = "self.answer = operator.AnswerGenerate(self.llm)\n"


def text(
    body: str = "r = await self.answer(input=problem)\nreturn r['answer'], 0.0", init: str = "", **more: str
) -> str:
    """A workflow whose ``__init__`` builds ``self.answer``, then ``init``."""
    return workflow(body, init=ANSWER + init, **more)


@dataclass(frozen=True)
class Claim:
    """A rule by its first words, workflows that it allows, and those it forbids with lint's code."""

    rule: str
    allows: tuple[str, ...]
    forbids: tuple[tuple[str, str], ...] = ()


ASK = "r = await self.answer(input=problem)\n"
TWICE = "a, b = await asyncio.gather(self.answer(input=problem), self.answer(input=problem))\nreturn a['answer'] or b['answer']"
CHOOSE = "s = await self.ensemble({}, problem)\nreturn s['response']"
OTHERS = "self.custom = operator.Custom(self.llm)\nself.ensemble = operator.ScEnsemble(self.llm)"
CODED = "c = await self.code(problem=problem, entry_point={}, instruction='')\nreturn c['response'], 0.0"
CODE_GENERATE = "self.code = operator.CustomCodeGenerate(self.llm)"
#: Errors although they run, because the calls or the form are not what was meant.
HARMLESS = (
    text("self.answer(input=problem)\nreturn 'x'"),
    text("return f'{self.answer(input=problem)}'"),
    text("return problem", call="def __call__(self, problem)"),
)
CLAIMS = (
    Claim(
        "Reply with one ```python block",
        (text(),),
        (("W101", text("return (")), ("W101", "Here is the class:\n" + text()), ("W102", text().replace("Workflow", "Flow"))),
    ),
    Claim(
        "`operator` and `create_llm_instance` are defined",
        (
            text(before="import re, json, math, asyncio, random, itertools, statistics, string, functools, textwrap"),
            text(before="from typing import Any, Optional\nfrom collections import Counter, defaultdict"),
            text(before="from dataclasses import dataclass\nimport time, datetime, fractions, decimal, heapq, enum, abc"),
        ),
        (
            ("W109", text(before="import numpy as np")),
            ("W109", text(before="from openai import OpenAI")),
            ("W108", text(before="import os")),
            ("W108", text(before="import subprocess")),
            ("W108", text(before="from urllib import request")),
            ("W210", text(ASK + "return p.STEPS + r['answer']", before="import workspace.X.workflows.round_1.prompt as p")),
        ),
    ),
    Claim(
        "Build operators of the list only",
        (workflow(),),
        (
            ("W201", text(init="self.s = operator.Solver(self.llm)")),
            ("W205", text(init="self.c = operator.Custom(self.llm)")),
        ),
    ),
    Claim(
        "Await every call of an operator",
        (
            text(TWICE, before="import asyncio"),
            text("rs = await asyncio.gather(*[self.answer(input=problem) for _ in range(3)])\nreturn rs[0]['answer']", before="import asyncio"),
        ),
        (
            ("W204", text("r = self.answer(input=problem)\nreturn r['answer']")),
            *(("W204", source) for source in HARMLESS[:2]),
            ("W204", text("r = await self.custom(self.answer(input=problem), '')\nreturn r['response']", OTHERS)),
        ),
    ),
    Claim(
        "Give a call every argument",
        (
            text("r = await self.answer(problem)\nreturn r['answer']"),
            workflow("p = await self.p(problem=problem)\nq = await self.p(problem, analysis='multiply')\nreturn p['output'] or q['output']", init="self.p = operator.Programmer(self.llm)"),
        ),
        (
            ("W203", text("r = await self.answer()\nreturn r['answer']")),
            ("W203", workflow("r = await self.custom(input=problem)\nreturn r['response']")),
            ("W203", workflow("r = await self.custom(problem, input=problem)\nreturn r['response']")),
            ("W203", text(ASK + CHOOSE.format("r['answer']"), OTHERS)),
            ("W203", text(ASK + CHOOSE.format("[r, r]"), OTHERS)),
            ("W203", text("rs = [await self.answer(input=problem) for _ in range(3)]\n" + CHOOSE.format("rs"), OTHERS)),
            ("W203", text(f"rs = []\nfor _ in range(2):\n    {ASK}    rs.append(r)\n" + CHOOSE.format("rs"), OTHERS)),
            ("W203", text("r = await self.answer(input=problem, instruction='')\nreturn r['answer']")),
            ("W203", text(ASK + "return r['answer']", init="self.answer = operator.AnswerGenerate(self.llm, votes=3)")),
        ),
    ),
    Claim(
        "Read a result by its keys",
        (
            text(ASK + "return r['answer'] if r['parse_ok'] else r['error']"),
            text(ASK + "return r.get('answer', '')"),
        ),
        (
            ("W211", text(ASK + "return problem + r")),
            ("W207", text(ASK + "return r['response']")),
            ("W207", text(ASK + "return r.answer")),
            ("W207", text("return (await self.answer(input=problem))['response']")),
            ("W207", text(ASK + "return ' '.join([each['answer'] for each in r])")),
        ),
    ),
    Claim(
        "`self.llm` is for building",
        (text(ASK + "return r['answer'], self.llm.get_usage_summary()['total_cost']"),),
        (
            ("W209", text(ASK + "return await self.llm(problem)")),
            ("W209", text(ASK + "return await self.llm.chat(problem)")),
        ),
    ),
    Claim(
        "`__init__` gets name, llm_config and dataset",
        tuple(text(parameters=p) for p in ("", ", llm", ", llm_config", ", name, llm", ", *args, **kwargs", ", llm, tries=3")),
        (("W106", text(parameters=", tools")), ("W106", text(parameters=", name, llm_config, dataset, tools"))),
    ),
    Claim(
        "`__call__` is async and takes the problem",
        (
            text(ASK.replace("problem", "q") + "return r['answer']", call="async def __call__(self, q: str) -> tuple"),
            text(call="async def __call__(self, problem, entry_point=None)"),
            workflow(CODED.format("kwargs.get('entry_point', 'solve')"), init=CODE_GENERATE, call="async def __call__(self, problem: str, **kwargs)"),
            workflow("if entry_point is None:\n    return problem, 0.0\n" + CODED.format("entry_point"), init=CODE_GENERATE, call="async def __call__(self, problem: str, entry_point: Optional[str] = None) -> Tuple[str, float]", before="from typing import Optional, Tuple"),
        ),
        (
            ("W104", HARMLESS[2]),
            ("W104", text(call="async def solve(self, problem)")),
            ("W105", text("return 'x'", call="async def __call__(self)")),
            ("W105", text(call="async def __call__(self, problem, entry_point, tests)")),
            ("W107", text()),  # for a code problem
        ),
    ),
    Claim(
        "Set every variable, function and attribute",
        (
            text(ASK + "x = ''\nfor word in problem.split():\n    x = word\nreturn r['answer'] or x"),
            text(ASK + "if r['answer']:\n    x = r['answer']\nelse:\n    x = 'none'\nreturn x"),
        ),
        (
            ("W202", text(ASK + "s = await self.review(problem=problem, solution=r['answer'])\nreturn s['feedback']")),
            ("W301", text(ASK + "if r['answer']:\n    x = r['answer']\nreturn x")),
            ("W301", text(ASK + "for x in problem.split():\n    r['answer'] += x\nreturn x")),
            ("W301", text(f"try:\n    {ASK}except Exception:\n    pass\nreturn r['answer']")),
            ("W301", text("while True:\n    if problem:\n        break\n    x = 'a'\nreturn x")),
            ("W301", text("match problem:\n    case 'a':\n        x = 'a'\nreturn x")),
            ("W303", text(ASK + "return clean(r['answer'])")),
            ("W303", text(TWICE)),
        ),
    ),
    Claim(
        "Return on every path the answer",
        (
            text(ASK + "return r['answer']"),
            text(ASK + "if r['parse_ok']:\n    return r['answer'], 0.0\nreturn r['thought'], 0.0"),
            text(ASK + "return int(r['answer']) if r['answer'].isdigit() else r['answer']"),
        ),
        (
            ("W304", text(ASK)),
            ("W304", text(ASK + "if r['answer']:\n    return r['answer']")),
            ("W304", text("for w in problem.split():\n    r = await self.answer(input=w)\n    if r['answer']:\n        return w")),
            ("W304", text(ASK + "return None")),
            ("W304", text("return")),
            ("W401", text(ASK + "return [r['answer']]")),
            ("W401", text(ASK + "return r, 0.0")),
            ("W401", text(ASK + "return {'answer': r['answer']}")),
            ("W206", text(ASK + "return r['answer']\ns = await self.answer(input=problem)")),
        ),
    ),
    Claim(
        "Constants, helper functions",
        (
            text(
                "return await self.solve(problem)",
                before="LIMIT = 3\n\n\ndef clean(t):\n    return t.strip()\n\n\nclass Box:\n    pass",
                more="async def solve(self, problem):\n    r = await self.answer(input=problem)\n    return clean(r['answer'])[:LIMIT]\n",
            ),
        ),
    ),
)  # fmt: skip


def test_every_rule_is_claimed_and_whatever_lint_reports_some_rule_forbids() -> None:
    assert len(CLAIMS) == len(RULES)
    assert [rule for rule, claim in zip(RULES, CLAIMS, strict=True) if not rule.startswith(claim.rule)] == []
    assert {code for claim in CLAIMS for code, _ in claim.forbids} == set(CODES)


def test_what_a_rule_allows_runs_and_what_it_forbids_is_found(run: Run) -> None:
    allowed = [source for claim in CLAIMS for source in claim.allows]
    runs = [(source, run(source, CODE if "entry_point" in source else QUESTION)) for source in allowed]
    assert not [pair for pair in runs if (pair[1].outcome, pair[1].error, pair[1].findings) != ("finished", "", ())]
    wrong = []
    for code, source in [pair for claim in CLAIMS for pair in claim.forbids]:
        found = {f.code for f in linted(source, entry_point="f" if code == "W107" else None)}
        failed = run(source, linted=False).outcome == "raised" or not CODES[code][1]
        if not {code} <= found <= {code, "W205"} or failed is (source in HARMLESS):
            wrong.append((code, found, source))
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
    assert prompt.prefill == HEAD and Layer1(WorkflowConfig())(QUESTION).prefill == ""
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
