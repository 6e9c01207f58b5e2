"""What the learned policy is measured against, on the same problems and the same executor.

Every plan of ``workflow.plans`` runs on every problem once; the rows are read off that matrix: one plain call
everywhere, the best single plan everywhere, a plan drawn at random, and the best plan of each domain (oracle). The
best and the oracle are chosen on the very problems they are measured on, which favours them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_as_judge.evaluation.evaluate import Given, evaluate
from llm_as_judge.evaluation.metrics import Estimate, accuracy, bootstrap_interval, mean, number
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.types import DOMAINS, Domain, Problem, Question, Rollout
from llm_as_judge.workflow.catalogue import PLANS, Plan, workflow

SINGLE_CALL = "direct"


@dataclass(frozen=True, slots=True)
class Baseline:
    """One line of the table; ``plan`` names the plan of each domain."""

    name: str
    plan: Mapping[Domain, str]
    overall: Estimate
    domains: Mapping[Domain, Estimate]
    tokens: float

    def as_json(self) -> dict[str, Any]:
        return {
            "overall": number(self.overall.value),
            **{d: number(e.value) for d, e in self.domains.items()},
            "executor_tokens": number(self.tokens),
            "plan": dict(self.plan),
        }


@dataclass(frozen=True, slots=True)
class Matrix:
    """Every plan's rollouts on the problems, in the problems' order."""

    rollouts: Mapping[str, Sequence[Rollout]]

    def cell(self, plan: str, domain: Domain) -> list[Rollout]:
        return [r for r in self.rollouts[plan] if r.problem.question.domain == domain]

    def accuracies(self) -> dict[str, dict[Domain, float]]:
        """Plan -> domain -> accuracy."""
        return {
            plan: {d: _right(self.cell(plan, d)).value for d in DOMAINS if self.cell(plan, d)} for plan in self.rollouts
        }


def _right(rollouts: Sequence[Rollout]) -> Estimate:
    return accuracy([r.verdict.correct for r in rollouts])


async def measure(
    problems: Sequence[Problem],
    parts: RolloutParts,
    progress: Callable[[int], None] = lambda done: None,
    plans: Collection[str] = tuple(PLANS),
) -> Matrix:
    """Run every one of ``plans`` on every problem."""
    rollouts: dict[str, Sequence[Rollout]] = {}
    for done, plan in enumerate((PLANS[name] for name in plans), start=1):

        def source(question: Question, plan: Plan = plan) -> str:
            return workflow(plan, question.domain)

        rollouts[plan.name] = (await evaluate(problems, Given(source), parts)).rollouts
        progress(done)
    return Matrix(rollouts)


def rows(matrix: Matrix) -> list[Baseline]:
    """The four baseline rows, or the first alone where no other plan was measured; none of an empty matrix."""
    if not matrix.rollouts:
        return []
    by_domain = matrix.accuracies()
    domains = [d for d in DOMAINS if any(d in cells for cells in by_domain.values())]
    if list(by_domain) == [SINGLE_CALL]:
        return [_row("single call everywhere", dict.fromkeys(domains, SINGLE_CALL), matrix)]
    best = max(matrix.rollouts, key=lambda plan: _known(_right(matrix.rollouts[plan]).value))
    oracle = {d: max(by_domain, key=lambda plan: _known(by_domain[plan][d])) for d in domains}
    return [
        _row("single call everywhere", dict.fromkeys(domains, SINGLE_CALL), matrix),
        _row("best single workflow everywhere", dict.fromkeys(domains, best), matrix),
        _random(matrix, domains),
        _row("per-domain oracle", oracle, matrix),
    ]


def _known(share: float) -> float:
    """A plan that was never scored is nobody's best."""
    return -1.0 if math.isnan(share) else share


def _row(name: str, plans: Mapping[Domain, str], matrix: Matrix) -> Baseline:
    cells = {d: matrix.cell(plan, d) for d, plan in plans.items()}
    everything = [r for cell in cells.values() for r in cell]
    return Baseline(
        name,
        plans,
        _right(everything),
        {d: _right(cell) for d, cell in cells.items()},
        mean([float(r.execution.tokens) for r in everything]),
    )


def _random(matrix: Matrix, domains: Sequence[Domain]) -> Baseline:
    """Expected accuracy of a plan drawn evenly for each problem: a mean over plans, then over problems."""

    def expected(domain: Domain | None) -> Estimate:
        columns = zip(*matrix.rollouts.values(), strict=True)
        shares = [
            mean([float(bool(r.verdict.correct)) for r in column if r.verdict.correct is not None])
            for column in columns
            if domain in (None, column[0].problem.question.domain)
        ]
        return bootstrap_interval([share for share in shares if not math.isnan(share)])

    tokens = mean([float(r.execution.tokens) for rs in matrix.rollouts.values() for r in rs])
    names = dict.fromkeys(domains, "any")
    return Baseline("random policy", names, expected(None), {d: expected(d) for d in domains}, tokens)
