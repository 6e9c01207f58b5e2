"""The ten operators: three write a first solution, two choose among several, two run code, three read a solution."""

import asyncio
import random
import re
from collections import Counter
from typing import Any, ClassVar

from llm_as_judge.answers.code import PROGRAM, defines, defining_block, is_name
from llm_as_judge.operators.base import Operator, Toolbox, result
from llm_as_judge.operators.replies import chosen_index, field, truth
from llm_as_judge.sandbox.public_test import first_failure

_MOST_SOLUTIONS = 26
_VOTES_AT_ONCE = 32  # so that the budget can stop a large number of them
_TRIES = 3
_LONGEST_ERROR = 300  # characters


class Custom(Operator):
    """One executor call: the instruction, a line break, the input."""

    RESULT: ClassVar = {"response": str}
    SUMMARY = "answers the input as the instruction says"

    async def __call__(self, input: str, instruction: str) -> dict[str, Any]:
        text = (await self.tools.ask(self.NAME, f"{instruction}\n{input}" if instruction else input)).strip()
        return result(parse_ok=bool(text), response=text)


class AnswerGenerate(Operator):
    """A reasoned answer. A reply without tags is taken whole, with ``parse_ok=False``; one cut off has none."""

    RESULT: ClassVar = {"thought": str, "answer": str}
    SUMMARY = "thinks step by step, then gives the final answer"

    async def __call__(self, input: str) -> dict[str, Any]:
        reply = await self.tools.reply(self.NAME, self.tools.prompts.answer_generate.format(input=input))
        cut = reply.cut_off
        answer, thought = field(reply.reply, "answer", cut=cut), field(reply.reply, "thought") or ""
        if answer is None:
            whole = "" if cut else reply.reply.strip()
            return result(parse_ok=False, error="no <answer> in the reply", thought=thought, answer=whole)
        return result(thought=thought, answer=answer)


class CustomCodeGenerate(Operator):
    """One draft of the function, asked for with its signature and one public test if the question has them."""

    RESULT: ClassVar = {"response": str}
    SUMMARY = "writes the Python function entry_point"

    async def __call__(self, problem: str, entry_point: str, instruction: str) -> dict[str, Any]:
        prompts, question = self.tools.prompts, self.tools.question
        signature = _signature(entry_point, question.text)
        prompt = _asking(prompts.custom_code_generate, entry_point).format(
            instruction=prompts.instruction.format(instruction=instruction) if instruction else "",
            problem=problem,
            entry_point=entry_point,
            signature=prompts.signature.format(signature=signature) if signature else "",
            example=prompts.example.format(test=question.public_tests[0]) if question.public_tests else "",
        )
        source = defining_block(await self.tools.ask(self.NAME, prompt), entry_point)
        found = defines(source, entry_point)
        return result(parse_ok=found, error="" if found else f"no {entry_point} in the reply", response=source)


class ScEnsemble(Operator):
    """Asks which solution is most consistent; if all agree, there is no call."""

    RESULT: ClassVar = {"response": str}
    SUMMARY = "picks the most consistent of several solutions"

    async def __call__(self, solutions: list[str], problem: str) -> dict[str, Any]:
        texts = _texts(solutions)
        index = 0 if len(set(texts)) == 1 else await _choice(self, texts, problem)
        if index is None:
            frequent = Counter(texts).most_common(1)[0][0]
            return result(parse_ok=False, error="no solution letter in the reply", response=frequent)
        return result(response=texts[index])


class MdEnsemble(Operator):
    """``vote_count`` votes at the same time, each over the solutions in another order."""

    RESULT: ClassVar = {"solution": str}
    SUMMARY = "takes a vote of 5 on several solutions"

    def __init__(self, tools: Toolbox, vote_count: int = 5) -> None:
        super().__init__(tools)
        if vote_count < 1:
            raise ValueError(f"vote_count must be >= 1, got {vote_count}")
        self.vote_count = vote_count

    async def __call__(self, solutions: list[str], problem: str) -> dict[str, Any]:
        texts = _texts(solutions)
        if len(set(texts)) == 1:
            return result(solution=texts[0])
        valid: list[int] = []
        for first in range(0, self.vote_count, _VOTES_AT_ONCE):
            indices = range(first, min(first + _VOTES_AT_ONCE, self.vote_count))
            votes = await asyncio.gather(*(self._vote(texts, problem, i) for i in indices))
            valid += [vote for vote in votes if vote is not None]
        if not valid:
            frequent = Counter(texts).most_common(1)[0][0]
            return result(parse_ok=False, error="no vote could be read", solution=frequent)
        return result(solution=texts[Counter(valid).most_common(1)[0][0]])

    async def _vote(self, texts: list[str], problem: str, index: int) -> int | None:
        order = list(range(len(texts)))
        random.Random(f"{index}:{problem}".encode("utf-8", "surrogatepass")).shuffle(order)
        choice = await _choice(self, [texts[i] for i in order], problem)
        return None if choice is None else order[choice]


class Programmer(Operator):
    """Writes ``solve()`` and runs it, up to three times; ``output`` is its value as text, empty if all tries failed."""

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
            source = defining_block(reply, "solve")
            run = await self.tools.run_code(source, call="solve", args=[])
            if run.outcome == "finished" and run.value is not None:
                return result(code=source, output=str(run.value))
            error = run.error or ("solve() returned None" if run.outcome == "finished" else run.outcome)
        return result(parse_ok=False, error=error, code=source, output="")


class Test(Operator):
    """Runs the public tests and asks for a correction when one fails. Without tests, the function only has to load."""

    RESULT: ClassVar = {"result": bool, "solution": str}
    SUMMARY = "runs public tests on code and repairs it when they fail"

    async def __call__(self, problem: str, solution: str, entry_point: str, test_loop: int = 3) -> dict[str, Any]:
        source = defining_block(solution, entry_point)
        failure = await self._first_failure(source, entry_point)
        for _ in range(test_loop):
            if failure is None:
                break
            prompt = _asking(self.tools.prompts.test, entry_point).format(
                problem=problem, solution=source, test=failure[0], error=failure[1], entry_point=entry_point
            )
            source = defining_block(await self.tools.ask(self.NAME, prompt), entry_point) or source
            failure = await self._first_failure(source, entry_point)
        error = "" if failure is None else f"{failure[0]}: {failure[1]}"
        return result(result=failure is None, solution=source, error=error)

    async def _first_failure(self, source: str, entry_point: str) -> tuple[str, str] | None:
        """Find the first public test that fails and what was seen."""
        if not is_name(entry_point):
            return f"assert callable({entry_point})", "entry_point is not a function name"
        failure = await first_failure(self.tools.run_code, self.tools.question, source, entry_point)
        if failure is None:
            return None
        statement, found = failure
        seen = self.tools.prompts.got.format(got=found.got, expected=found.expected) if found.got else ""
        return statement, (seen or found.error)[-_LONGEST_ERROR:]


class Format(Operator):
    """The final answer of a longer solution, in a few words."""

    RESULT: ClassVar = {"response": str}
    SUMMARY = "reduces a solution to its final answer"

    async def __call__(self, problem: str, solution: str) -> dict[str, Any]:
        text = await self.tools.ask(self.NAME, self.tools.prompts.format.format(problem=problem, solution=solution))
        answer = field(text, "answer") or text.strip()
        return result(parse_ok=bool(answer), response=answer)


class Review(Operator):
    """A verdict on a solution as a real bool; an unreadable reply counts as no objection, with ``parse_ok=False``."""

    RESULT: ClassVar = {"review_result": bool, "feedback": str}
    SUMMARY = "checks a solution"

    async def __call__(self, problem: str, solution: str) -> dict[str, Any]:
        reply = await self.tools.reply(self.NAME, self.tools.prompts.review.format(problem=problem, solution=solution))
        feedback = field(reply.reply, "feedback") or ""
        verdict = truth(field(reply.reply, "review_result", cut=reply.cut_off))
        if verdict is None:
            return result(parse_ok=False, error="no True or False in the reply", review_result=True, feedback=feedback)
        return result(review_result=verdict, feedback=feedback)


class Revise(Operator):
    """A corrected solution. A reply without tags is taken whole; an empty one, or one cut off, changes nothing."""

    RESULT: ClassVar = {"solution": str}
    SUMMARY = "rewrites a solution by the feedback"

    async def __call__(self, problem: str, solution: str, feedback: str) -> dict[str, Any]:
        prompt = self.tools.prompts.revise.format(problem=problem, solution=solution, feedback=feedback)
        reply = await self.tools.reply(self.NAME, prompt)
        cut = reply.cut_off
        revised = field(reply.reply, "solution", cut=cut)
        if not revised:
            whole = reply.reply.strip() if revised is None and not cut else ""
            return result(parse_ok=False, error="no <solution> in the reply", solution=whole or solution)
        return result(solution=revised)


def _asking(template: str, entry_point: str) -> str:
    """Write a prompt that asks for a function, or for a whole program if that is tested."""
    return template.replace("function {entry_point}", "program") if entry_point == PROGRAM else template


def _signature(entry_point: str, text: str) -> str:
    """Find the function's first line if the problem shows it."""
    if not is_name(entry_point):
        return ""
    found = re.search(rf"(?ms)^[ \t]*((?:async )?def {entry_point}\s*\(.*?\)[^:\n]*:)", text)
    return " ".join(found.group(1).split()) if found else ""


async def _choice(operator: Operator, texts: list[str], problem: str) -> int | None:
    lettered = "\n".join(f"{chr(ord('A') + i)}: {text}" for i, text in enumerate(texts))
    prompt = operator.tools.prompts.ensemble.format(problem=problem, listing=lettered)
    return chosen_index(await operator.tools.ask(operator.NAME, prompt), len(texts))


def _texts(solutions: list[Any]) -> list[str]:
    """Read solutions as strings; none, or more than there are letters, is the workflow's mistake."""
    if not 1 <= len(solutions) <= _MOST_SOLUTIONS:
        raise ValueError(f"solutions must hold 1 to {_MOST_SOLUTIONS} entries, got {len(solutions)}")
    return [str(s).strip() for s in solutions]


CLASSES: tuple[Any, ...] = (
    Custom, AnswerGenerate, CustomCodeGenerate, ScEnsemble, MdEnsemble, Programmer, Test, Format, Review, Revise,
)  # fmt: skip
