"""ScEnsemble and MdEnsemble: one of several solutions, by consistency or by vote."""

import asyncio
import random
from collections import Counter
from typing import Any, ClassVar

from llm_as_judge.operators.base import Operator, Toolbox, listing, result
from llm_as_judge.operators.reading import chosen_letter

MAX_SOLUTIONS = 26
_VOTES_AT_ONCE = 32  # so that the budget can stop a large number of them


class ScEnsemble(Operator):
    """Asks which solution is most consistent; if all agree, there is no call."""

    NAME = "ScEnsemble"
    RESULT: ClassVar = {"response": str}
    SUMMARY = "picks the most consistent of several solutions"

    async def __call__(self, solutions: list[str], problem: str) -> dict[str, Any]:
        texts = _texts(solutions)
        index = 0 if len(set(texts)) == 1 else await _choice(self, texts, problem)
        if index is None:
            return result(parse_ok=False, error="no solution letter in the reply", response=_most_common(texts))
        return result(response=texts[index])


class MdEnsemble(Operator):
    """``vote_count`` votes at the same time, each over the solutions in another order."""

    NAME = "MdEnsemble"
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
            return result(parse_ok=False, error="no vote could be read", solution=_most_common(texts))
        return result(solution=texts[Counter(valid).most_common(1)[0][0]])

    async def _vote(self, texts: list[str], problem: str, index: int) -> int | None:
        order = list(range(len(texts)))
        random.Random(f"{index}:{problem}".encode("utf-8", "surrogatepass")).shuffle(order)
        choice = await _choice(self, [texts[i] for i in order], problem)
        return None if choice is None else order[choice]


async def _choice(operator: Operator, texts: list[str], problem: str) -> int | None:
    prompt = operator.tools.prompts.ensemble.format(problem=problem, listing=listing(texts))
    return chosen_letter(await operator.tools.ask(operator.NAME, prompt), len(texts))


def _texts(solutions: list[Any]) -> list[str]:
    """Solutions as strings; none, or more than there are letters, is the workflow's mistake."""
    if not 1 <= len(solutions) <= MAX_SOLUTIONS:
        raise ValueError(f"solutions must hold 1 to {MAX_SOLUTIONS} entries, got {len(solutions)}")
    return [str(s).strip() for s in solutions]


def _most_common(texts: list[str]) -> str:
    """The first of the most frequent solutions."""
    return Counter(texts).most_common(1)[0][0]
