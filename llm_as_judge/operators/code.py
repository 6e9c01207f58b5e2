"""Programmer and Test: operators that run code in the sandbox and try again with the error."""

from typing import Any, ClassVar

from llm_as_judge.operators.base import Operator, result
from llm_as_judge.operators.reading import code, is_name
from llm_as_judge.sandbox.public_test import run_assert

_TRIES = 3
_ERROR_LIMIT = 300  # characters


class Programmer(Operator):
    """Writes ``solve()`` and runs it, up to three times, with the last error in the prompt. ``output`` is the text of
    what ``solve()`` returned, empty if all tries failed.
    """

    NAME = "Programmer"
    RESULT: ClassVar = {"code": str, "output": str}
    SUMMARY = "writes and runs a program that computes the answer"

    async def __call__(self, problem: str, analysis: str = "None") -> dict[str, Any]:
        prompts = self.tools.prompts
        known = prompts.analysis.format(analysis=analysis) if analysis and analysis != "None" else ""
        source = error = ""
        for _ in range(_TRIES):
            failure = prompts.failure.format(code=source, error=error) if error else ""
            # No variable keeps a prompt, which may be megabytes, while the next one is made.
            reply = await self.tools.ask(
                self.NAME, prompts.programmer.format(problem=problem, analysis=known, failure=failure)
            )
            source = code(reply, "solve")
            run = await self.tools.run_code(source, call="solve", args=[])
            if run.outcome == "finished" and run.value is not None:
                return result(code=source, output=str(run.value))
            error = run.error or ("solve() returned None" if run.outcome == "finished" else run.outcome)
        return result(parse_ok=False, error=error, code=source, output="")


class Test(Operator):
    """Runs the question's public tests and asks for a corrected solution when one fails. ``result`` is True if all
    pass. Without public tests, the function only has to load.
    """

    NAME = "Test"
    RESULT: ClassVar = {"result": bool, "solution": str}
    SUMMARY = "runs public tests on code and repairs it when they fail"

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
        """The first public test that fails and what was seen."""
        if not is_name(entry_point):
            return f"assert callable({entry_point})", "entry_point is not a function name"
        for statement in self.tools.question.public_tests or (f"assert callable({entry_point})",):
            found = await run_assert(self.tools.run_code, source, statement)
            if not found.passed:
                seen = self.tools.prompts.got.format(got=found.got, expected=found.expected) if found.got else ""
                return statement, (seen or found.error or found.outcome)[-_ERROR_LIMIT:]
        return None
