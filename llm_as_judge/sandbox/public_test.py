"""Runs one public test on a solution and reports the values that it compared: the feedback for a repair.

For public tests only, because the expected value is in the solution's process. Hidden tests: ``Sandbox.verdict``.
"""

import ast
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from llm_as_judge.answers.code import quiet_parse
from llm_as_judge.sandbox.program import as_function
from llm_as_judge.sandbox.results import CodeResult
from llm_as_judge.types import Question

RunCode = Callable[..., Awaitable[CodeResult]]


@dataclass(frozen=True, slots=True)
class AssertResult:
    """``got`` and ``expected`` are ``repr`` texts, empty unless the test is ``assert left == right``."""

    passed: bool
    got: str = ""
    expected: str = ""
    error: str = ""


async def first_failure(
    run_code: RunCode, question: Question, solution: str, name: str | None = None
) -> tuple[str, AssertResult] | None:
    """Find the first public test that a solution fails, and how; without any, it must define the function ``name``."""
    for statement in question.public_tests or (f"assert callable({name or question.entry_point})",):
        found = await run_assert(run_code, solution, statement, question.entry_point or name, question.prelude)
        if not found.passed:
            return statement, found
    return None


async def run_assert(
    run_code: RunCode, solution: str, statement: str, entry_point: str | None = None, prelude: str = ""
) -> AssertResult:
    """Run one assert by ``Sandbox.run_code``, after prelude and solution as in hidden tests.

    Raises ``SyntaxError`` if ``statement`` is something else.
    """
    source = f"{as_function(solution, entry_point or '')}\n\n{_probe(statement)}"
    run = await run_code(source, call="_probe_assert", prelude=prelude)
    if run.outcome != "finished":
        return AssertResult(False, error=run.error or run.outcome)
    match run.value:
        case [bool(passed), str(got), str(expected)]:
            return AssertResult(passed, got, expected, "" if passed else "AssertionError")
    return AssertResult(False, error="the solution changed the test's result")


def _probe(statement: str) -> str:
    """Write a function that returns ``[passed, repr of the left side, repr of the right side]``."""
    match quiet_parse(statement).body:
        case [ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]))]:
            lines = [f"got = {ast.unparse(left)}", f"expected = {ast.unparse(right)}", "passed = bool(got == expected)"]
            lines.append("return [passed, repr(got)[:300], repr(expected)[:300]]")
        case [ast.Assert(test=test)]:
            lines = [f"return [bool({ast.unparse(test)}), '', '']"]
        case _:
            raise SyntaxError(f"not one assert statement: {statement!r}")
    return "\n    ".join(["def _probe_assert():", *lines])
