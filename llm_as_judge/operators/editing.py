"""Format, Review and Revise: operators that read a solution and say or write something about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llm_as_judge.operators.base import Toolbox, field, result

FORMAT_PROMPT = "{problem}\nSolution: {solution}\nReply with the final answer only."
REVIEW_PROMPT = (
    "Check the solution.\n"
    "Reply: <feedback>reasoning</feedback><review_result>True or False</review_result>\n"
    "{problem}\nSolution: {solution}"
)
REVISE_PROMPT = (
    "The solution is wrong. Correct it.\n"
    "Reply: <solution>corrected solution</solution>\n"
    "{problem}\nSolution: {solution}\nFeedback: {feedback}"
)


class Format:
    """The final answer of a longer solution, in a few words."""

    NAME: ClassVar[str] = "Format"
    RESULT: ClassVar[Mapping[str, type]] = {"response": str}
    SUMMARY: ClassVar[str] = "reduces a solution to its final answer"

    def __init__(self, tools: Toolbox) -> None:
        self.tools = tools

    async def __call__(self, problem: str, solution: str) -> dict[str, Any]:
        text = await self.tools.ask(self.NAME, FORMAT_PROMPT.format(problem=problem, solution=solution))
        return result(parse_ok=bool(text.strip()), response=text.strip())


class Review:
    """A verdict on a solution as a real bool; an unreadable reply counts as no objection, with ``parse_ok=False``."""

    NAME: ClassVar[str] = "Review"
    RESULT: ClassVar[Mapping[str, type]] = {"review_result": bool, "feedback": str}
    SUMMARY: ClassVar[str] = "checks a solution"

    def __init__(self, tools: Toolbox) -> None:
        self.tools = tools

    async def __call__(self, problem: str, solution: str) -> dict[str, Any]:
        text = await self.tools.ask(self.NAME, REVIEW_PROMPT.format(problem=problem, solution=solution))
        feedback = field(text, "feedback") or ""
        word = (field(text, "review_result") or "").lower().strip(" .")
        if word not in ("true", "false"):
            return result(parse_ok=False, error="no True or False in the reply", review_result=True, feedback=feedback)
        return result(review_result=word == "true", feedback=feedback)


class Revise:
    """A corrected solution; a reply without tags is taken whole, an empty one leaves the solution as it was."""

    NAME: ClassVar[str] = "Revise"
    RESULT: ClassVar[Mapping[str, type]] = {"solution": str}
    SUMMARY: ClassVar[str] = "rewrites a solution by the feedback"

    def __init__(self, tools: Toolbox) -> None:
        self.tools = tools

    async def __call__(self, problem: str, solution: str, feedback: str) -> dict[str, Any]:
        prompt = REVISE_PROMPT.format(problem=problem, solution=solution, feedback=feedback)
        text = await self.tools.ask(self.NAME, prompt)
        revised = field(text, "solution")
        if not revised:
            whole = text.strip() if revised is None else ""
            return result(parse_ok=False, error="no <solution> in the reply", solution=whole or solution)
        return result(solution=revised)
