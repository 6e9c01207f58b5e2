"""AnswerGenerate: reasoning and a final answer, kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llm_as_judge.operators.base import Toolbox, cut_off, result
from llm_as_judge.operators.reading import field


class AnswerGenerate:
    """Step-by-step reasoning; a reply without tags or labels is taken whole as the answer, with ``parse_ok=False``; one
    cut off before its answer has none.
    """

    NAME: ClassVar[str] = "AnswerGenerate"
    RESULT: ClassVar[Mapping[str, type]] = {"thought": str, "answer": str}
    SUMMARY: ClassVar[str] = "thinks step by step, then gives the final answer"

    def __init__(self, tools: Toolbox) -> None:
        self.tools = tools

    async def __call__(self, input: str) -> dict[str, Any]:
        reply = await self.tools.reply(self.NAME, self.tools.prompts.answer_generate.format(input=input))
        cut = cut_off(reply)
        answer, thought = field(reply.text, "answer", cut=cut), field(reply.text, "thought") or ""
        if answer is None:
            whole = "" if cut else reply.text.strip()
            return result(parse_ok=False, error="no <answer> in the reply", thought=thought, answer=whole)
        return result(thought=thought, answer=answer)
