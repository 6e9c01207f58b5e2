"""Shapes of workflows, read off their text."""

from __future__ import annotations

import pytest

from llm_as_judge.workflow.shape import TEMPLATES, shape


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("answer_direct", "Custom"),
        ("answer_generate", "AnswerGenerate"),
        ("custom_think", "Custom"),
        ("programmer", "Programmer"),
        ("sc_ensemble", "3xAnswerGenerate>ScEnsemble"),
        ("review_revise", "AnswerGenerate>Review>Revise"),
        ("code_generate", "CustomCodeGenerate"),
        ("code_test", "CustomCodeGenerate>Test"),
        ("aflow_gsm8k", "Custom"),
        ("aflow_humaneval", "CustomCodeGenerate"),
    ],
)
def test_shapes_of_the_templates(name: str, expected: str) -> None:
    assert shape(TEMPLATES[name]) == expected


def with_body(body: str) -> str:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return (
        "class Workflow:\n    def __init__(self, name, llm_config, dataset):\n"
        "        self.a = operator.AnswerGenerate(self.llm)\n        self.c = operator.Custom(self.llm)\n"
        "        self.s = operator.ScEnsemble(self.llm)\n    async def __call__(self, problem):\n" + lines
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("rs = await asyncio.gather(*[self.a(problem) for _ in range(3)])", "3xAnswerGenerate"),
        ("x, y = await asyncio.gather(self.a(problem), self.a(problem))", "2xAnswerGenerate"),
        ("x = await self.a(problem)\ny = await self.a(problem)\nz = await self.s([x, y], problem)",
         "2xAnswerGenerate>ScEnsemble"),
        ("z = await self.s([(await self.a(problem))['answer'], (await self.c(problem, ''))['response']], problem)",
         "AnswerGenerate>Custom>ScEnsemble"),
        ("for h in ['a', 'b']:\n    r = await self.c(problem, h)", "2xCustom"),
        ("hs = ['a', 'b', 'c']\nfor i, h in enumerate(hs):\n    r = await self.c(problem, h)", "3xCustom"),
        ("for i in range(2):\n    r = await self.a(problem)\n    t = await self.c(problem, '')",
         "2x(AnswerGenerate>Custom)"),
        ("for p in problem.split():\n    r = await self.a(p)", "nxAnswerGenerate"),
        ("while True:\n    r = await self.a(problem)", "nxAnswerGenerate"),
        ("for i in range(2):\n    for j in range(3):\n        r = await self.a(problem)", "6xAnswerGenerate"),
        ("return problem", ""),
    ],
)  # fmt: skip
def test_shapes_of_loops_and_groups(body: str, expected: str) -> None:
    assert shape(with_body(body)) == expected


@pytest.mark.parametrize("source", ["", "def f(", "x = 1", "class Workflow: pass"])
def test_a_text_without_a_workflow_has_no_shape(source: str) -> None:
    assert shape(source) == "invalid"
