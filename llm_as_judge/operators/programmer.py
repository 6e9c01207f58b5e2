"""Programmer: writes ``solve()``, runs it in the sandbox, tries again with the error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llm_as_judge.answers.code import last_block
from llm_as_judge.operators.base import Toolbox, result

PROMPT = "{problem}\n{analysis}{feedback}Write a Python function solve() that returns the answer. Reply with code only."
TRIES = 3


class Programmer:
    """Up to three tries; the last error is fed back. ``output`` is the text of what ``solve()`` returned."""

    NAME: ClassVar[str] = "Programmer"
    RESULT: ClassVar[Mapping[str, type]] = {"code": str, "output": str}
    SUMMARY: ClassVar[str] = "writes and runs a program that computes the answer"

    def __init__(self, tools: Toolbox) -> None:
        self.tools = tools

    async def __call__(self, problem: str, analysis: str = "None") -> dict[str, Any]:
        known = f"Analysis: {analysis}\n" if analysis and analysis != "None" else ""
        code = error = ""
        for _ in range(TRIES):
            feedback = f"The last program failed: {error}\n" if error else ""
            prompt = PROMPT.format(problem=problem, analysis=known, feedback=feedback)
            code = last_block(await self.tools.ask(self.NAME, prompt))
            run = await self.tools.run_code(code, call="solve", args=[])
            if run.outcome == "finished" and run.value is not None:
                return result(code=code, output=str(run.value))
            error = run.error or ("solve() returned None" if run.outcome == "finished" else run.outcome)
        return result(parse_ok=False, error=error, code=code, output=f"Error: {error}")
