"""Custom, AnswerGenerate and CustomCodeGenerate: operators that write a first solution."""

import re
from typing import Any, ClassVar

from llm_as_judge.operators.base import Operator, cut_off, result
from llm_as_judge.operators.reading import code, defines, field, is_name


class Custom(Operator):
    """One executor call: the instruction, a line break, the input."""

    NAME = "Custom"
    RESULT: ClassVar = {"response": str}
    SUMMARY = "answers the input as the instruction says"

    async def __call__(self, input: str, instruction: str) -> dict[str, Any]:
        prompt = f"{instruction}\n{input}" if instruction else input
        text = (await self.tools.ask(self.NAME, prompt)).strip()
        return result(parse_ok=bool(text), response=text)


class AnswerGenerate(Operator):
    """Step-by-step reasoning and an answer. A reply without tags or labels is taken whole as the answer, with
    ``parse_ok=False``; one cut off before its answer has none.
    """

    NAME = "AnswerGenerate"
    RESULT: ClassVar = {"thought": str, "answer": str}
    SUMMARY = "thinks step by step, then gives the final answer"

    async def __call__(self, input: str) -> dict[str, Any]:
        reply = await self.tools.reply(self.NAME, self.tools.prompts.answer_generate.format(input=input))
        cut = cut_off(reply)
        answer, thought = field(reply.reply, "answer", cut=cut), field(reply.reply, "thought") or ""
        if answer is None:
            whole = "" if cut else reply.reply.strip()
            return result(parse_ok=False, error="no <answer> in the reply", thought=thought, answer=whole)
        return result(thought=thought, answer=answer)


class CustomCodeGenerate(Operator):
    """One draft of the function. The prompt has the workflow's instruction first, then the function's signature and one
    public test if the question has them.
    """

    NAME = "CustomCodeGenerate"
    RESULT: ClassVar = {"response": str}
    SUMMARY = "writes the Python function entry_point"

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
    """The function's first line if the problem shows it."""
    if not is_name(entry_point):
        return ""
    pattern = rf"^[ \t]*((?:async )?def {entry_point}\s*\(.*?\)[^:\n]*:)"
    found = re.search(pattern, text, re.DOTALL | re.MULTILINE)
    return " ".join(found.group(1).split()) if found else ""
