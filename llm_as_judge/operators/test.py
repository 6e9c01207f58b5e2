"""Test: runs the public tests on a solution and asks for a corrected one when they fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llm_as_judge.operators.base import Toolbox, result
from llm_as_judge.operators.reading import code
from llm_as_judge.sandbox.public_test import run_assert

_ERROR_LIMIT = 300


class Test:
    """Public tests only; ``result`` is True when all pass. Without any, the solution only has to load."""

    NAME: ClassVar[str] = "Test"
    RESULT: ClassVar[Mapping[str, type]] = {"result": bool, "solution": str}
    SUMMARY: ClassVar[str] = "runs public tests on code and repairs it when they fail"

    def __init__(self, tools: Toolbox) -> None:
        self.tools = tools

    async def __call__(self, problem: str, solution: str, entry_point: str, test_loop: int = 3) -> dict[str, Any]:
        source = code(solution, entry_point)
        failure = await self._first_failure(source, entry_point)
        for _ in range(test_loop):
            if failure is None:
                break
            prompt = self.tools.prompts.test.format(
                problem=problem, solution=source, test=failure[0], error=failure[1], entry_point=entry_point
            )
            source = code(await self.tools.ask(self.NAME, prompt), entry_point) or source
            failure = await self._first_failure(source, entry_point)
        error = "" if failure is None else f"{failure[0]}: {failure[1]}"
        return result(result=failure is None, solution=source, error=error)

    async def _first_failure(self, source: str, entry_point: str) -> tuple[str, str] | None:
        """The first public test that fails and what was seen, or None."""
        if not entry_point.isidentifier():
            return f"assert callable({entry_point})", "entry_point is not a function name"
        for statement in self.tools.question.public_tests or (f"assert callable({entry_point})",):
            found = await run_assert(self.tools, source, statement)
            if not found.passed:
                seen = self.tools.prompts.got.format(got=found.got, expected=found.expected) if found.got else ""
                return statement, (seen or found.error or found.outcome)[-_ERROR_LIMIT:]
        return None
