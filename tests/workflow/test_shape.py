"""Shapes of workflows, read off their text."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_as_judge.workflow.shape import normalise_code, shape

GRAPHS = Path(__file__).parent / "graphs"


@pytest.mark.parametrize(("name", "expected"), [("aflow_gsm8k", "Custom"), ("aflow_humaneval", "CustomCodeGenerate")])
def test_a_published_graph_has_the_shape_of_its_calls(name: str, expected: str) -> None:
    assert shape((GRAPHS / f"{name}.py").read_text(encoding="utf-8")) == expected


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


def test_layout_and_comments_are_no_difference_and_text_that_is_no_python_keeps_its_words() -> None:
    assert normalise_code("x: int=1 # one\n\n") == normalise_code("x = 1")
    assert normalise_code("def f(a: int) -> str:\n  'doc'\n  return a") == normalise_code("def f(a): return a")
    assert normalise_code("not   python (") == "not python ("
