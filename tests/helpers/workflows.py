"""Texts of workflows."""

from textwrap import indent
from typing import Any

from llm_as_judge.types import Finding, Question
from llm_as_judge.workflow.lint.check import lint

QUESTION = Question("q", "What is 6 times 7?", "math")
CODE = Question("c", "Square a number.", "code", entry_point="f", public_tests=("assert f(2) == 4", "assert f(3) == 9"))
SQUARE, DOUBLE = "def f(x):\n    return x * x", "def f(x):\n    return x + x"


def workflow(
    body: str = "r = await self.custom(input=problem, instruction='')\nreturn r['response'], 0.0",
    *,
    init: str = "self.custom = operator.Custom(self.llm)",
    parameters: str = ", name, llm_config, dataset",
    call: str = "async def __call__(self, problem)",
    before: str = "",
    more: str = "",
) -> str:
    """A workflow with ``body`` in ``__call__``, ``init`` in ``__init__``, ``more`` in the class, and ``before`` first.

    With one line of ``init`` and nothing ``before``, the body begins in line 7.
    """
    head = f"{before}\nclass Workflow:" if before else "class Workflow:"
    first = indent(f"self.llm = create_llm_instance()\n{init}", " " * 8)
    methods = f"{indent(more, ' ' * 4)}\n    {call}:\n{indent(body, ' ' * 8)}\n"
    return f"{head}\n    def __init__(self{parameters}):\n{first}\n{methods}"


def linted(source: str, **given: Any) -> list[Finding]:
    return list(lint(source, **given).findings)
