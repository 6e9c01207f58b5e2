"""AnswerGenerate: reasoning and a final answer, kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llm_as_judge.operators.base import Toolbox, field, result

PROMPT = (
    "Think step by step, then answer.\nReply: <thought>reasoning</thought><answer>final answer only</answer>\n{input}"
)


class AnswerGenerate:
    """Step-by-step reasoning; a reply without tags is taken whole as the answer, with ``parse_ok=False``."""

    NAME: ClassVar[str] = "AnswerGenerate"
    RESULT: ClassVar[Mapping[str, type]] = {"thought": str, "answer": str}
    SUMMARY: ClassVar[str] = "thinks step by step, then gives the final answer"

    def __init__(self, tools: Toolbox) -> None:
        self.tools = tools

    async def __call__(self, input: str) -> dict[str, Any]:
        text = await self.tools.ask(self.NAME, PROMPT.format(input=input))
        answer = field(text, "answer")
        thought = field(text, "thought") or ""
        if answer is None:
            return result(parse_ok=False, error="no <answer> in the reply", thought=thought, answer=text.strip())
        return result(thought=thought, answer=answer)
