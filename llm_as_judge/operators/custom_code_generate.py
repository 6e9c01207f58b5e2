"""CustomCodeGenerate: Python source for a named function."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from llm_as_judge.operators.base import Toolbox, result
from llm_as_judge.operators.reading import code, defines


class CustomCodeGenerate:
    """One draft of the function, by its signature and a public test where there are such; the workflow's instruction
    comes first.
    """

    NAME: ClassVar[str] = "CustomCodeGenerate"
    RESULT: ClassVar[Mapping[str, type]] = {"response": str}
    SUMMARY: ClassVar[str] = "writes the Python function entry_point"

    def __init__(self, tools: Toolbox) -> None:
        self.tools = tools

    async def __call__(self, problem: str, entry_point: str, instruction: str) -> dict[str, Any]:
        prompts, question = self.tools.prompts, self.tools.question
        signature = _signature(entry_point, question.text)
        prompt = prompts.custom_code_generate.format(
            instruction=prompts.instruction.format(instruction=instruction) if instruction else "",
            problem=problem,
            entry_point=entry_point,
            signature=prompts.signature.format(signature=signature) if signature else "",
            example=prompts.example.format(test=question.public_tests[0]) if question.public_tests else "",
        )
        source = code(await self.tools.ask(self.NAME, prompt), entry_point)
        found = defines(source, entry_point)
        return result(parse_ok=found, error="" if found else f"no {entry_point} in the reply", response=source)


def _signature(entry_point: str, text: str) -> str:
    """The function's first line where the problem shows it."""
    found = re.search(
        rf"^[ \t]*((?:async )?def {re.escape(entry_point)}\s*\(.*?\)[^:\n]*:)", text, re.DOTALL | re.MULTILINE
    )
    return " ".join(found.group(1).split()) if found else ""
