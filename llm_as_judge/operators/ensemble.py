"""ScEnsemble and MdEnsemble: one of several solutions, by consistency or by vote."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from llm_as_judge.operators.base import Toolbox, listing, result
from llm_as_judge.operators.reading import chosen_letter

MAX_SOLUTIONS = 26
#: Votes under way together, so that the budget can stop a large number of them.
_VOTES_AT_ONCE = 32


@dataclass(frozen=True)
class ScEnsemble:
    """Asks which solution is most consistent; if all agree, there is no call."""

    tools: Toolbox

    NAME: ClassVar[str] = "ScEnsemble"
    RESULT: ClassVar[Mapping[str, type]] = {"response": str}
    SUMMARY: ClassVar[str] = "picks the most consistent of several solutions"

    async def __call__(self, solutions: list[str], problem: str) -> dict[str, Any]:
        texts = _texts(solutions)
        if len(set(texts)) == 1:
            return result(response=texts[0])
        prompt = self.tools.prompts.ensemble.format(problem=problem, listing=listing(texts))
        index = chosen_letter(await self.tools.ask(self.NAME, prompt), len(texts))
        if index is None:
            error = "no solution letter in the reply"
            return result(parse_ok=False, error=error, response=_most_common(texts))
        return result(response=texts[index])


@dataclass(frozen=True)
class MdEnsemble:
    """``vote_count`` votes at the same time, each over the solutions in another order."""

    tools: Toolbox
    vote_count: int = 5

    NAME: ClassVar[str] = "MdEnsemble"
    RESULT: ClassVar[Mapping[str, type]] = {"solution": str}
    SUMMARY: ClassVar[str] = "takes a vote of 5 on several solutions"

    def __post_init__(self) -> None:
        if self.vote_count < 1:
            raise ValueError(f"vote_count must be >= 1, got {self.vote_count}")

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
        random.Random(f"{index}:{problem}").shuffle(order)
        prompt = self.tools.prompts.ensemble.format(problem=problem, listing=listing([texts[i] for i in order]))
        choice = chosen_letter(await self.tools.ask(self.NAME, prompt), len(texts))
        return None if choice is None else order[choice]


def _texts(solutions: list[Any]) -> list[str]:
    """Solutions as strings; none, or more than there are letters, is the workflow's mistake."""
    if not 1 <= len(solutions) <= MAX_SOLUTIONS:
        raise ValueError(f"solutions must hold 1 to {MAX_SOLUTIONS} entries, got {len(solutions)}")
    return [str(s).strip() for s in solutions]


def _most_common(texts: list[str]) -> str:
    """The first of the most frequent solutions."""
    return Counter(texts).most_common(1)[0][0]
