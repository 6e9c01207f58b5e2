"""Baselines for the learned policy, on the same problems and the same executor.

Every plan of ``workflow.shapes`` runs on every problem once. The rows come from that matrix: one plain call, the
best single plan, a random plan, and the best plan of each domain (oracle). The best plan and the oracle are chosen on
the problems they are measured on, which favours them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from llm_as_judge.evaluation.evaluate import Evaluation, Given, evaluate
from llm_as_judge.evaluation.metrics import Estimate, estimate, mean
from llm_as_judge.evaluation.official import share
from llm_as_judge.evaluation.records import Ledger
from llm_as_judge.events import RolloutEvent
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.runlog import json_data
from llm_as_judge.types import DOMAINS, Domain, Problem, Question, Rollout
from llm_as_judge.workflow.shapes import SHAPES, workflow

SINGLE_CALL = "direct"
ORACLE = "per-domain oracle"


@dataclass(frozen=True, slots=True)
class Row:
    """One method on all problems. Executor tokens, cost and seconds are means over workflows without infrastructure
    faults.
    """

    name: str
    plan: Mapping[Domain, str]  # of each domain; empty for a policy
    by_problem: tuple[float | None, ...]  # share right of each, None = unscored
    overall: Estimate
    domains: Mapping[Domain, Estimate]
    tokens: float
    cost: float
    seconds: float

    def as_json(self) -> dict[str, Any]:
        estimates = {"overall": self.overall} | {str(d): e for d, e in self.domains.items()}
        row = {
            **{name: e.value for name, e in estimates.items()},
            "interval": {name: [e.low, e.high] for name, e in estimates.items()},
            "executor_tokens": self.tokens,
            "cost": self.cost,
            "seconds": self.seconds,
            "plan": self.plan,
        }
        return dict(json_data(row))


def row(name: str, records: Sequence[RolloutEvent], plan: Mapping[Domain, str] | None = None) -> Row:
    """A row made of one record for each problem."""
    return _row(name, plan or {}, [share([r.correct]) for r in records], [r.domain for r in records], records)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Evaluations of several plans on the same problems."""

    evaluations: Mapping[str, Evaluation]

    @property
    def problems(self) -> Iterator[Mapping[str, RolloutEvent]]:
        """Records of each problem, by plan."""
        for records in zip(*(e.records for e in self.evaluations.values()), strict=True):
            yield dict(zip(self.evaluations, records, strict=True))

    @property
    def domains(self) -> list[Domain]:
        there = {record.domain for evaluation in self.evaluations.values() for record in evaluation.records}
        return [d for d in DOMAINS if d in there]

    @property
    def rollouts(self) -> list[Rollout]:
        """Rollouts that ran now."""
        return [rollout for evaluation in self.evaluations.values() for rollout in evaluation.rollouts]

    def accuracies(self) -> dict[str, dict[Domain, float]]:
        """Accuracy by plan and domain."""
        return {
            plan: {d: e.value for d, e in row(plan, evaluation.records).domains.items()}
            for plan, evaluation in self.evaluations.items()
        }

    def row(self, name: str, plan: Mapping[Domain, str]) -> Row:
        """A row made of the given plan of each domain."""
        return row(name, [records[plan[_domain(records)]] for records in self.problems], plan)

    def everywhere(self, name: str, plan: str) -> Row:
        return self.row(name, dict.fromkeys(self.domains, plan))


def _domain(records: Mapping[str, RolloutEvent]) -> Domain:
    return next(iter(records.values())).domain


def plan_author(name: str) -> Given:
    """Writes the plan of this name for the question's domain."""

    def source(question: Question) -> str:
        return workflow(SHAPES[name], question.domain)

    return Given(source)


async def measure(
    problems: Sequence[Problem],
    parts: RolloutParts,
    progress: Callable[[int], None] = lambda done: None,
    plans: Collection[str] = tuple(SHAPES),
    log: Callable[[str], AbstractContextManager[Ledger | None]] = lambda plan: nullcontext(),
) -> Matrix:
    """Runs every plan on every problem; ``log`` opens the ledger of each."""
    evaluations: dict[str, Evaluation] = {}
    for done, plan in enumerate(plans, start=1):
        with log(plan) as known:
            evaluations[plan] = await evaluate(problems, plan_author(plan), parts, log=known)
        progress(done)
    return Matrix(evaluations)


def rows(matrix: Matrix) -> list[Row]:
    """The four baseline rows, or only the first if only that plan was measured; none for an empty matrix."""
    if not matrix.evaluations:
        return []
    single = matrix.everywhere("single call everywhere", SINGLE_CALL)
    if list(matrix.evaluations) == [SINGLE_CALL]:
        return [single]
    overall = {plan: row(plan, evaluation.records).overall.value for plan, evaluation in matrix.evaluations.items()}
    return [
        single,
        matrix.everywhere("best single workflow everywhere", _best(overall)),
        random_policy(matrix),
        domain_oracle(matrix),
    ]


def domain_oracle(matrix: Matrix) -> Row:
    """The plan with the highest accuracy in each domain."""
    shares = matrix.accuracies()
    best: dict[Domain, str] = {d: _best({plan: own[d] for plan, own in shares.items()}) for d in matrix.domains}
    return matrix.row(ORACLE, best)


def _best(shares: Mapping[str, float]) -> str:
    """The plan with the highest share; unscored plans come last."""
    return max(shares, key=lambda plan: -1.0 if math.isnan(shares[plan]) else shares[plan])


def random_policy(matrix: Matrix) -> Row:
    """Expected accuracy of a plan drawn uniformly for each problem."""
    problems = list(matrix.problems)
    shares = [share([record.correct for record in records.values()]) for records in problems]
    everything = [record for evaluation in matrix.evaluations.values() for record in evaluation.records]
    return _row(
        "random policy", dict.fromkeys(matrix.domains, "any"), shares, [_domain(r) for r in problems], everything
    )


def _row(
    name: str,
    plan: Mapping[Domain, str],
    shares: Sequence[float | None],
    domains: Sequence[Domain],
    records: Sequence[RolloutEvent],
) -> Row:
    """``shares`` and ``domains`` of each problem, and all ``records`` that contribute to the costs."""
    ran = [r for r in records if r.outcome != "fault"]
    return Row(
        name,
        plan,
        tuple(shares),
        estimate(shares),
        {d: estimate([s for s, own in zip(shares, domains, strict=True) if own == d]) for d in DOMAINS if d in domains},
        mean([float(r.executor_tokens) for r in ran]),
        mean([r.cost for r in ran]),
        mean([r.seconds for r in ran]),
    )
