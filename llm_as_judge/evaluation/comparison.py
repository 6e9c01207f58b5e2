"""A policy beside the other ways to answer the same problems with the same executor, each difference paired by problem.

All but the policies' own rows are read off one matrix of plans (``baselines``), so that no workflow runs twice. The
oracles choose on the very problems they are measured on: they are bounds, which no method can be expected to reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from llm_as_judge.evaluation.baselines import ORACLE, Matrix, Row, domain_oracle, random_policy, row
from llm_as_judge.evaluation.metrics import Estimate, number, paired_difference
from llm_as_judge.evaluation.records import Record
from llm_as_judge.types import DOMAINS, Domain

SINGLE_CALL, UNTRAINED, TRAINED = "single call (IO)", "untrained policy", "trained policy"
HALVING, PROBLEM_ORACLE = "best single workflow, by successive halving", "per-problem oracle"
BOUNDS = (ORACLE, PROBLEM_ORACLE)

#: The plans that AFlow's search begins with.
FIRST_ROUND: Mapping[Domain, str] = {"math": "direct", "code": "code", "qa": "direct"}
#: What somebody would write without looking at results: the plan of each domain.
METHODS: Mapping[str, Mapping[Domain, str]] = {
    SINGLE_CALL: dict.fromkeys(DOMAINS, "direct"),
    "chain of thought": dict.fromkeys(DOMAINS, "think"),
    "self-consistency": dict.fromkeys(DOMAINS, "vote"),
    "self-refine": dict.fromkeys(DOMAINS, "review"),
    "AFlow's first round": FIRST_ROUND,
    "hand-written for each domain": {"math": "program", "code": "code_test", "qa": "vote"},
}


@dataclass(frozen=True, slots=True)
class Compared:
    """``difference``: the policy minus this row over the same problems, paired; None for the policy itself."""

    row: Row
    difference: Estimate | None

    @property
    def bound(self) -> bool:
        """Nobody could have chosen so beforehand."""
        return self.row.name in BOUNDS

    def as_json(self) -> dict[str, Any]:
        told = {"name": self.row.name, **self.row.as_json()}
        if (own := self.difference) is None:
            return {**told, "difference": None}
        return {**told, "difference": {"value": number(own.value), "interval": [own.low, own.high], "problems": own.n}}


def compare(
    matrix: Matrix,
    policies: Mapping[str, Sequence[Record]],
    winner: str | None,
    peers: Mapping[str, Sequence[Record]] | None = None,
) -> list[Compared]:
    """The rows in the order of the table. The last of ``policies``, by name, is what the others are compared with;
    ``winner`` is the plan that successive halving found, None without it; ``peers`` were found in other ways. A method
    that needs a plan which was not measured has no row.
    """
    measured = [row(name, records) for name, records in {**(peers or {}), **policies}.items()]
    made = [*_beforehand(matrix), random_policy(matrix)]
    if winner:
        made.append(matrix.everywhere(HALVING, winner))
    made += [*measured, domain_oracle(matrix), problem_oracle(matrix)]
    policy = measured[-1]
    return [
        Compared(one, None if one is policy else paired_difference(policy.by_problem, one.by_problem)) for one in made
    ]


def _beforehand(matrix: Matrix) -> Iterator[Row]:
    for name, plans in METHODS.items():
        plan = {d: plans[d] for d in matrix.domains}
        if set(plan.values()) <= matrix.evaluations.keys():
            yield matrix.row(name, plan)


def problem_oracle(matrix: Matrix) -> Row:
    """Of each problem the cheapest plan that is right; where none is, the cheapest."""

    def cost(record: Record) -> tuple[bool, bool, int]:
        return record.correct is None, not record.correct, record.tokens

    best = [min(records.values(), key=cost) for records in matrix.problems]
    return replace(row(PROBLEM_ORACLE, best), plan=dict.fromkeys(matrix.domains, "any"))


def front(compared: Sequence[Compared], kind: Literal["tokens", "cost"]) -> list[Row]:
    """The Pareto front of what could have been chosen beforehand, from the cheapest on: no other row is right as often
    for less of this kind of cost. Empty where nothing was scored.
    """
    scored = [c.row for c in compared if not c.bound and c.row.overall.n]
    found: list[Row] = []
    for one in sorted(scored, key=lambda row: (getattr(row, kind), -row.overall.value)):
        if not found or one.overall.value > found[-1].overall.value:
            found.append(one)
    return found
