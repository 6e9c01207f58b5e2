"""What the learned policy is measured against, on the same problems and the same executor.

Every plan of ``workflow.shapes`` runs on every problem once; the rows are read off that matrix: one plain call
everywhere, the best single plan everywhere, a plan drawn at random, and the best plan of each domain (oracle). The
best and the oracle are chosen on the very problems they are measured on, which favours them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from llm_as_judge.evaluation.evaluate import Evaluation, Given, Log, Unwritten, evaluate
from llm_as_judge.evaluation.metrics import Estimate, estimate, mean, number
from llm_as_judge.evaluation.official import share
from llm_as_judge.evaluation.records import Record
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.types import DOMAINS, Domain, Problem, Question, Rollout
from llm_as_judge.workflow.shapes import SHAPES, workflow

SINGLE_CALL = "direct"
ORACLE = "per-domain oracle"


@dataclass(frozen=True, slots=True)
class Row:
    """One way to answer all problems. Tokens are the executor's; they, cost and seconds are means over the workflows
    that were not our fault.
    """

    name: str
    plan: Mapping[Domain, str]  # of each domain; empty where a policy wrote the workflows
    by_problem: tuple[float | None, ...]  # share right of each, None = unscored
    overall: Estimate
    domains: Mapping[Domain, Estimate]
    tokens: float
    cost: float
    seconds: float

    def as_json(self) -> dict[str, Any]:
        estimates = {"overall": self.overall} | {str(d): e for d, e in self.domains.items()}
        return {
            **{name: number(e.value) for name, e in estimates.items()},
            "interval": {name: [e.low, e.high] for name, e in estimates.items()},
            "executor_tokens": number(self.tokens),
            "cost": number(self.cost),
            "seconds": number(self.seconds),
            "plan": dict(self.plan),
        }


def row(name: str, records: Sequence[Record], plan: Mapping[Domain, str] | None = None) -> Row:
    """Of one record for each problem."""
    return _row(name, plan or {}, [share([r.correct]) for r in records], [r.domain for r in records], records)


@dataclass(frozen=True, slots=True)
class Matrix:
    """An evaluation of every plan on the same problems, one workflow for each."""

    evaluations: Mapping[str, Evaluation]

    @property
    def problems(self) -> Iterator[Mapping[str, Record]]:
        """Plan -> record, of each problem."""
        for records in zip(*(e.records for e in self.evaluations.values()), strict=True):
            yield dict(zip(self.evaluations, records, strict=True))

    @property
    def domains(self) -> list[Domain]:
        there = {record.domain for evaluation in self.evaluations.values() for record in evaluation.records}
        return [d for d in DOMAINS if d in there]

    @property
    def rollouts(self) -> list[Rollout]:
        """All that ran now."""
        return [rollout for evaluation in self.evaluations.values() for rollout in evaluation.rollouts]

    def accuracies(self) -> dict[str, dict[Domain, float]]:
        """Plan -> domain -> accuracy."""
        return {
            plan: {d: e.value for d, e in row(plan, evaluation.records).domains.items()}
            for plan, evaluation in self.evaluations.items()
        }

    def row(self, name: str, plan: Mapping[Domain, str]) -> Row:
        """The plan of each domain on its problems."""
        return row(name, [records[plan[_domain(records)]] for records in self.problems], plan)

    def everywhere(self, name: str, plan: str) -> Row:
        return self.row(name, dict.fromkeys(self.domains, plan))


def _domain(records: Mapping[str, Record]) -> Domain:
    return next(iter(records.values())).domain


def plan_author(name: str) -> Given:
    """Writes the plan of this name, as it is for the question's domain."""

    def source(question: Question) -> str:
        return workflow(SHAPES[name], question.domain)

    return Given(source)


def _unwritten(plan: str) -> AbstractContextManager[Log]:
    return nullcontext(Unwritten())


async def measure(
    problems: Sequence[Problem],
    parts: RolloutParts,
    progress: Callable[[int], None] = lambda done: None,
    plans: Collection[str] = tuple(SHAPES),
    log: Callable[[str], AbstractContextManager[Log]] = _unwritten,
) -> Matrix:
    """Run every one of ``plans`` on every problem; ``log`` opens the log of each."""
    evaluations: dict[str, Evaluation] = {}
    for done, plan in enumerate(plans, start=1):
        with log(plan) as known:
            evaluations[plan] = await evaluate(problems, plan_author(plan), parts, log=known)
        progress(done)
    return Matrix(evaluations)


def rows(matrix: Matrix) -> list[Row]:
    """The four baseline rows, or the first alone where no other plan was measured; none of an empty matrix."""
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
    """The plan of each domain that is right most often on the very problems."""
    shares = matrix.accuracies()
    best: dict[Domain, str] = {d: _best({plan: own[d] for plan, own in shares.items()}) for d in matrix.domains}
    return matrix.row(ORACLE, best)


def _best(shares: Mapping[str, float]) -> str:
    """A plan that was never scored is nobody's best."""
    return max(shares, key=lambda plan: -1.0 if math.isnan(shares[plan]) else shares[plan])


def random_policy(matrix: Matrix) -> Row:
    """Expected accuracy of a plan drawn evenly for each problem: a mean over plans, then over problems."""
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
    records: Sequence[Record],
) -> Row:
    """``shares`` and ``domains`` of each problem; ``records`` are of all that ran."""
    ran = [r for r in records if r.outcome != "fault"]
    return Row(
        name,
        plan,
        tuple(shares),
        estimate(shares),
        {d: estimate([s for s, own in zip(shares, domains, strict=True) if own == d]) for d in DOMAINS if d in domains},
        mean([float(r.tokens) for r in ran]),
        mean([r.cost for r in ran]),
        mean([r.seconds for r in ran]),
    )
