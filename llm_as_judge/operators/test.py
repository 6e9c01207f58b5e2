"""Test: runs the public tests on a solution and asks for a corrected one when they fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llm_as_judge.answers.code import last_block
from llm_as_judge.operators.base import Toolbox, result

PROMPT = (
    "{problem}\nThis code is wrong:\n{solution}\nFailed test: {test}\nError: {error}\n"
    "Write the Python function {entry_point}. Reply with code only."
)
_ERROR_LIMIT = 300


class Test:
    """Public tests only; ``result`` is True when all pass. Without any, the solution only has to load."""

    NAME: ClassVar[str] = "Test"
    RESULT: ClassVar[Mapping[str, type]] = {"result": bool, "solution": str}
    SUMMARY: ClassVar[str] = "runs public tests on code and repairs it when they fail"

    def __init__(self, tools: Toolbox) -> None:
        self.tools = tools

    async def __call__(self, problem: str, solution: str, entry_point: str, test_loop: int = 3) -> dict[str, Any]:
        code = last_block(solution)
        failure = await self._first_failure(code, entry_point)
        for _ in range(test_loop):
            if failure is None:
                break
            prompt = PROMPT.format(
                problem=problem, solution=code, test=failure[0], error=failure[1], entry_point=entry_point
            )
            code = last_block(await self.tools.ask(self.NAME, prompt)) or code
            failure = await self._first_failure(code, entry_point)
        error = "" if failure is None else f"{failure[0]}: {failure[1]}"
        return result(result=failure is None, solution=code, error=error)

    async def _first_failure(self, code: str, entry_point: str) -> tuple[str, str] | None:
        """The first public test that fails and what was seen, or None."""
        if not entry_point.isidentifier():
            return f"assert callable({entry_point})", "entry_point is not a function name"
        for test in self.tools.question.public_tests or (f"assert callable({entry_point})",):
            run = await self.tools.run_code(f"{code}\n{_probe(test)}", call="_probe", args=[])
            if run.outcome != "finished":
                return test, (run.error or run.outcome)[-_ERROR_LIMIT:]
            if run.value is not None:
                return test, f"got {run.value}"[:_ERROR_LIMIT]
        return None


def _probe(test: str) -> str:
    """Source of a function that returns None when ``test`` holds, else the value its left side came to."""
    import ast

    node = ast.parse(test).body[0]
    if (
        isinstance(node, ast.Assert)
        and isinstance(node.test, ast.Compare)
        and len(node.test.ops) == 1
        and isinstance(node.test.ops[0], ast.Eq)
    ):
        left, right = ast.unparse(node.test.left), ast.unparse(node.test.comparators[0])
        return f"def _probe():\n    got = {left}\n    return None if got == {right} else repr(got)"
    body = "\n".join(f"    {line}" for line in test.splitlines())
    return f"def _probe():\n{body}\n"
