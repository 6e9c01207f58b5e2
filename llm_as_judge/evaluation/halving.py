"""The best of several workflows, found by successive halving (Karnin et al. 2013; Jamieson and Talwalkar 2016).

Each round has an equal share of the budget. All remaining candidates run on the same further problems until it is
spent; then the better half continues. Accuracy is measured over all problems seen so far.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_as_judge.evaluation.metrics import mean
from llm_as_judge.events import RolloutEvent
from llm_as_judge.runlog import json_data

#: Problems in the first trial of every candidate.
_FIRST = 4


@dataclass(frozen=True, slots=True)
class Round:
    """Problems and tokens of all candidates since the first round; ``accuracy`` is NaN if nothing could be scored."""

    problems: int
    tokens: int
    accuracy: Mapping[str, float]
    kept: Sequence[str]


@dataclass(frozen=True, slots=True)
class Search:
    """``budget`` is in executor tokens; fewer are used if the problems run out."""

    winner: str
    budget: int
    rounds: Sequence[Round]

    @property
    def tokens(self) -> int:
        return self.rounds[-1].tokens if self.rounds else 0

    def as_json(self) -> dict[str, Any]:
        return {**json_data(self), "tokens": self.tokens}


async def successive_halving(
    candidates: Sequence[str],
    trial: Callable[[str, int], Awaitable[Sequence[RolloutEvent]]],
    budget: int,
    problems: int,
) -> Search:
    """The best candidate; ties go to the one with fewer tokens. ``trial(name, n)`` gives a candidate's records on the
    first n problems, including those of earlier calls; n is at most ``problems``.
    """
    left, seen, spent = list(candidates), 0, 0
    records: dict[str, Sequence[RolloutEvent]] = {name: () for name in candidates}
    rounds: list[Round] = []
    while len(left) > 1:
        end = spent + (budget - spent) / math.ceil(math.log2(len(left)))
        while (more := min(problems - seen, _affordable([records[name] for name in left], end - spent))) > 0:
            seen += more
            made = await asyncio.gather(*(trial(name, seen) for name in left))
            records |= dict(zip(left, made, strict=True))
            spent = sum(record.executor_tokens for own in records.values() for record in own)
        shares = {name: mean([float(r.correct) for r in records[name] if r.correct is not None]) for name in left}
        ranked = sorted(left, key=lambda name: (-(shares[name] if shares[name] >= 0 else -1), _tokens(records[name])))
        left = ranked[: math.ceil(len(left) / 2)]
        rounds.append(Round(seen, spent, shares, left))
    return Search(left[0], budget, rounds)


def _affordable(records: Sequence[Sequence[RolloutEvent]], tokens: float) -> int:
    """Further problems within ``tokens``: half of what the mean so far allows, because the mean may be wrong."""
    if not any(records):
        return _FIRST
    each = sum(_tokens(own) for own in records)
    return math.ceil(tokens / each / 2) if 0 < each <= tokens else 0


def _tokens(records: Sequence[RolloutEvent]) -> float:
    return mean([float(record.executor_tokens) for record in records])
