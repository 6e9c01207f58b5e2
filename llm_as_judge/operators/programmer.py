"""Programmer: writes ``solve()``, runs it in the sandbox, tries again with the error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llm_as_judge.operators.base import Toolbox, result
from llm_as_judge.operators.reading import code

TRIES = 3


class Programmer:
    """Up to three tries; the last error is fed back. ``output`` is the text of what ``solve()`` returned, empty where
    all tries failed.
    """

    NAME: ClassVar[str] = "Programmer"
    RESULT: ClassVar[Mapping[str, type]] = {"code": str, "output": str}
    SUMMARY: ClassVar[str] = "writes and runs a program that computes the answer"

    def __init__(self, tools: Toolbox) -> None:
        self.tools = tools

    async def __call__(self, problem: str, analysis: str = "None") -> dict[str, Any]:
        prompts = self.tools.prompts
        known = prompts.analysis.format(analysis=analysis) if analysis and analysis != "None" else ""
        source = error = ""
        for _ in range(TRIES):
            failure = prompts.failure.format(code=source, error=error) if error else ""
            prompt = prompts.programmer.format(problem=problem, analysis=known, failure=failure)
            source = code(await self.tools.ask(self.NAME, prompt), "solve")
            run = await self.tools.run_code(source, call="solve", args=[])
            if run.outcome == "finished" and run.value is not None:
                return result(code=source, output=str(run.value))
            error = run.error or ("solve() returned None" if run.outcome == "finished" else run.outcome)
        return result(parse_ok=False, error=error, code=source, output="")
