"""The best of several workflows, found by successive halving (Karnin et al. 2013; Jamieson and Talwalkar 2016).

Each round has an even share of the budget. All that are left run on the same further problems until it is spent; then
the better half goes on, with twice the problems each. What is right is counted over all problems seen so far.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_as_judge.evaluation.metrics import mean, number
from llm_as_judge.evaluation.records import Record

#: Problems that every candidate runs on before anything is known of its tokens.
_FIRST = 4


@dataclass(frozen=True, slots=True)
class Round:
    """``shares``: of each candidate the share right, NaN where nothing could be scored; ``kept`` went on."""

    problems: int  # since the first round
    tokens: int  # since the first round, of all candidates
    shares: Mapping[str, float]
    kept: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        shares = {name: number(share) for name, share in self.shares.items()}
        return {"problems": self.problems, "tokens": self.tokens, "accuracy": shares, "kept": list(self.kept)}


@dataclass(frozen=True, slots=True)
class Search:
    """``budget`` in executor tokens; fewer were taken where the problems ran out."""

    winner: str
    budget: int
    rounds: Sequence[Round]

    @property
    def tokens(self) -> int:
        return self.rounds[-1].tokens if self.rounds else 0

    def as_json(self) -> dict[str, Any]:
        rounds = [one.as_json() for one in self.rounds]
        return {"winner": self.winner, "budget": self.budget, "tokens": self.tokens, "rounds": rounds}


async def successive_halving(
    candidates: Sequence[str],
    trial: Callable[[str, int], Awaitable[Sequence[Record]]],
    budget: int,
    problems: int,
) -> Search:
    """``trial`` gives the records of a candidate on the first N of ``problems`` problems, those of an earlier call
    included. Ties go to the candidate of fewer tokens.
    """
    left, seen, spent = list(candidates), 0, 0
    records: dict[str, Sequence[Record]] = {name: () for name in candidates}
    rounds: list[Round] = []
    while len(left) > 1:
        end = spent + (budget - spent) / math.ceil(math.log2(len(left)))
        while (more := min(problems - seen, _affordable([records[name] for name in left], end - spent))) > 0:
            seen += more
            made = await asyncio.gather(*(trial(name, seen) for name in left))
            records |= dict(zip(left, made, strict=True))
            spent = sum(record.tokens for own in records.values() for record in own)
        shares = {name: mean([float(r.correct) for r in records[name] if r.correct is not None]) for name in left}
        ranked = sorted(left, key=lambda name: (-_known(shares[name]), _tokens(records[name])))
        left = ranked[: math.ceil(len(left) / 2)]
        rounds.append(Round(seen, spent, shares, left))
    return Search(left[0], budget, rounds)


def _affordable(records: Sequence[Sequence[Record]], tokens: float) -> int:
    """Further problems for which ``tokens`` will do: half of what the mean so far says, for it may be wrong."""
    if not any(records):
        return _FIRST
    each = sum(_tokens(own) for own in records)
    return math.ceil(tokens / each / 2) if 0 < each <= tokens else 0


def _tokens(records: Sequence[Record]) -> float:
    return mean([float(record.tokens) for record in records])


def _known(share: float) -> float:
    return -1.0 if math.isnan(share) else share
