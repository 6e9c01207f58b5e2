"""Custom: one free call with an instruction of the workflow's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llm_as_judge.operators.base import Toolbox, result


class Custom:
    """One call of the executor: the instruction, a line break, the input."""

    NAME: ClassVar[str] = "Custom"
    RESULT: ClassVar[Mapping[str, type]] = {"response": str}
    SUMMARY: ClassVar[str] = "answers the input as the instruction says"

    def __init__(self, tools: Toolbox) -> None:
        self.tools = tools

    async def __call__(self, input: str, instruction: str) -> dict[str, Any]:
        prompt = f"{instruction}\n{input}" if instruction else input
        text = (await self.tools.ask(self.NAME, prompt)).strip()
        return result(parse_ok=bool(text), response=text)
