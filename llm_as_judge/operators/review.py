"""Format, Review and Revise: operators that read a solution."""

from typing import Any, ClassVar

from llm_as_judge.operators.base import Operator, cut_off, result
from llm_as_judge.operators.reading import field, truth


class Format(Operator):
    """The final answer of a longer solution, in a few words."""

    NAME = "Format"
    RESULT: ClassVar = {"response": str}
    SUMMARY = "reduces a solution to its final answer"

    async def __call__(self, problem: str, solution: str) -> dict[str, Any]:
        text = await self.tools.ask(self.NAME, self.tools.prompts.format.format(problem=problem, solution=solution))
        answer = field(text, "answer") or text.strip()
        return result(parse_ok=bool(answer), response=answer)


class Review(Operator):
    """A verdict on a solution as a real bool; an unreadable reply counts as no objection, with ``parse_ok=False``."""

    NAME = "Review"
    RESULT: ClassVar = {"review_result": bool, "feedback": str}
    SUMMARY = "checks a solution"

    async def __call__(self, problem: str, solution: str) -> dict[str, Any]:
        reply = await self.tools.reply(self.NAME, self.tools.prompts.review.format(problem=problem, solution=solution))
        feedback = field(reply.reply, "feedback") or ""
        verdict = truth(field(reply.reply, "review_result", cut=cut_off(reply)))
        if verdict is None:
            return result(parse_ok=False, error="no True or False in the reply", review_result=True, feedback=feedback)
        return result(review_result=verdict, feedback=feedback)


class Revise(Operator):
    """A corrected solution. A reply without tags is taken whole; an empty one, or one cut off, leaves the solution as
    it was.
    """

    NAME = "Revise"
    RESULT: ClassVar = {"solution": str}
    SUMMARY = "rewrites a solution by the feedback"

    async def __call__(self, problem: str, solution: str, feedback: str) -> dict[str, Any]:
        prompt = self.tools.prompts.revise.format(problem=problem, solution=solution, feedback=feedback)
        reply = await self.tools.reply(self.NAME, prompt)
        cut = cut_off(reply)
        revised = field(reply.reply, "solution", cut=cut)
        if not revised:
            whole = reply.reply.strip() if revised is None and not cut else ""
            return result(parse_ok=False, error="no <solution> in the reply", solution=whole or solution)
        return result(solution=revised)
