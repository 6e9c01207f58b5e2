"""CustomCodeGenerate: Python source for a named function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llm_as_judge.answers.code import last_block
from llm_as_judge.operators.base import Toolbox, result

PROMPT = "{problem}\nWrite the Python function {entry_point}. Reply with code only."


class CustomCodeGenerate:
    """One draft of the function; the instruction, when given, comes first."""

    NAME: ClassVar[str] = "CustomCodeGenerate"
    RESULT: ClassVar[Mapping[str, type]] = {"response": str}
    SUMMARY: ClassVar[str] = "writes the Python function entry_point"

    def __init__(self, tools: Toolbox) -> None:
        self.tools = tools

    async def __call__(self, problem: str, entry_point: str, instruction: str) -> dict[str, Any]:
        prompt = PROMPT.format(problem=problem, entry_point=entry_point)
        if instruction:
            prompt = f"{instruction}\n{prompt}"
        code = last_block(await self.tools.ask(self.NAME, prompt))
        return result(parse_ok=bool(code), response=code)
