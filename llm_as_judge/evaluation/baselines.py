"""Baselines for the learned policy, on the same problems and the same executor.

Every plan (named shape of ``workflow.shapes``) runs once on every problem. The rows come from that matrix: a single
call, the best single plan, a random plan, and the best plan of each domain and of each dataset (oracles). The best plan
and the oracles are chosen on the problems they are measured on, which favours them.
"""

import asyncio
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from llm_as_judge.evaluation.evaluate import Given, all_of, evaluate
from llm_as_judge.evaluation.intervals import Estimate, as_json, estimate, mean
from llm_as_judge.evaluation.official import mean_score, share
from llm_as_judge.evaluation.records import Ledger
from llm_as_judge.events import RolloutEvent
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.types import DOMAINS, Domain, Kind, Problem, in_order
from llm_as_judge.workflow.shapes import SHAPES, workflow

SINGLE_CALL = "direct"
ORACLE, DATASET_ORACLE = "per-domain oracle", "per-dataset oracle"
Group = Callable[[RolloutEvent], str]
#: Opens the ledger of a method, named by what decides its records.
Log = Callable[[str, Sequence[str]], AbstractContextManager[Ledger | None]]


@dataclass(frozen=True, slots=True)
class Row:
    """One method on all problems; tokens, cost and seconds are means over workflows without infrastructure faults."""

    name: str
    plan: Mapping[str, str]  # of each domain or dataset; empty for a policy
    by_problem: tuple[float | None, ...]  # share right of each, None = unscored
    overall: Estimate
    score: Estimate | None  # mean score; None if the verdicts are right and wrong only
    domains: Mapping[Domain, Estimate]
    datasets: Mapping[str, Estimate]
    ran: Estimate  # share of workflows that ran to an answer
    tokens: float
    cost: float
    seconds: float
    idle: float  # share of workflows that called no operator

    def as_json(self) -> dict[str, Any]:
        costs = {"executor_tokens": self.tokens, "cost": self.cost, "seconds": self.seconds, "plan": self.plan}
        datasets = {"datasets": as_json(self.datasets)}
        shares = as_json({"overall": self.overall, **self.domains, "ran": self.ran})
        score = {"score": self.score.value} if self.score else {}
        return {**shares, **score, **datasets, **costs, "without_operators": self.idle}


def row(name: str, problems: Sequence[Sequence[RolloutEvent]], plan: Mapping[str, str] | None = None) -> Row:
    """A row made of some records for each problem."""
    shares = tuple(share([record.correct for record in records]) for records in problems)
    own = [records[0].domain for records in problems]
    domains = {d: estimate([s for s, of in zip(shares, own, strict=True) if of == d]) for d in in_order(own)}
    of_dataset: dict[str, list[float | None]] = {}
    for records, right in zip(problems, shares, strict=True):
        of_dataset.setdefault(records[0].dataset, []).append(right)
    datasets = {name: estimate(values) for name, values in of_dataset.items()}
    ran = [record for records in problems for record in records if record.outcome != "fault"]
    answered = estimate([mean([float(r.outcome == "finished") for r in records]) for records in problems])
    costs = [mean([getattr(r, kind) for r in ran]) for kind in ("executor_tokens", "cost", "seconds")]
    costs.append(mean([float(not record.operators) for record in ran]))
    return Row(name, plan or {}, shares, estimate(shares), mean_score(problems), domains, datasets, answered, *costs)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Records of several plans on the same problems."""

    evaluations: Mapping[str, Sequence[RolloutEvent]]

    @property
    def problems(self) -> list[dict[str, RolloutEvent]]:
        """Records of each problem, by plan."""
        columns = zip(*self.evaluations.values(), strict=True)
        return [dict(zip(self.evaluations, records, strict=True)) for records in columns]

    @property
    def kinds(self) -> dict[Domain, Kind]:
        """The domains, each with its kind."""
        there = {record.domain: record.kind for records in self.evaluations.values() for record in records}
        return {d: there[d] for d in in_order(there)}

    def accuracies(self) -> dict[str, dict[Domain, float]]:
        return {plan: {d: e.value for d, e in self.everywhere("", plan).domains.items()} for plan in self.evaluations}

    def best(self, group: Group = lambda record: "") -> dict[str, str]:
        """The plan with the highest accuracy in each group of problems; of several the one with the best mean score,
        then the cheapest; unscored ones last.
        """

        def worth(plan: str, of: str) -> tuple[float, float, float]:
            found = row(plan, [[r] for r in self.evaluations[plan] if group(r) == of])
            right, tokens = found.overall.value, found.tokens
            score = found.score.value if found.score else 0.0
            return (-1.0, 0.0, 0.0) if math.isnan(right) else (right, score, -tokens)

        groups = dict.fromkeys(group(record) for records in self.problems for record in records.values())
        return {of: max(self.evaluations, key=lambda plan: worth(plan, of)) for of in groups}

    def row(self, name: str, plan: Mapping[str, str], group: Group = lambda record: record.domain) -> Row:
        """A row made of the given plan of each group of problems."""
        return row(name, [[records[plan[group(next(iter(records.values())))]]] for records in self.problems], plan)

    def everywhere(self, name: str, plan: str) -> Row:
        return self.row(name, dict.fromkeys(self.kinds, plan))


async def measure(
    problems: Sequence[Problem], parts: RolloutParts, progress: Callable[[int, int], None] = lambda done, total: None,
    plans: Collection[str] = tuple(SHAPES), log: Log = lambda plan, texts: nullcontext(),
) -> Matrix:  # fmt: skip
    """Runs every plan on every problem; ``log`` opens the ledger of each.

    Of few problems several plans run at once, so that the executor has full batches.
    """
    together = asyncio.Semaphore(max(1, parts.concurrency // max(1, len(problems))))
    finished = itertools.count(1)

    async def one(plan: str) -> Sequence[RolloutEvent]:
        author = Given(lambda question: workflow(SHAPES[plan], question.kind))
        async with together:
            with log(plan, [workflow(SHAPES[plan], domain) for domain in DOMAINS]) as known:
                records = await evaluate(problems, author, parts, log=known)
        progress(next(finished), len(plans))
        return records

    return Matrix(dict(zip(plans, await all_of(map(one, plans)), strict=True)))


def rows(matrix: Matrix) -> list[Row]:
    """The baseline rows, or only the first if only that plan was measured; none for an empty matrix."""
    if not matrix.evaluations:
        return []
    single = matrix.everywhere("single call everywhere", SINGLE_CALL)
    if list(matrix.evaluations) == [SINGLE_CALL]:
        return [single]
    everywhere = matrix.everywhere("best single workflow everywhere", matrix.best()[""])
    return [single, everywhere, random_policy(matrix), *oracles(matrix)]


def oracles(matrix: Matrix) -> list[Row]:
    """The best plan of each domain and, if there are more datasets than domains, of each dataset."""
    dataset: Group = attrgetter("dataset")
    found = [matrix.row(ORACLE, matrix.best(lambda record: record.domain))]
    best = matrix.best(dataset)
    return [*found, matrix.row(DATASET_ORACLE, best, dataset)] if len(best) > len(matrix.kinds) else found


def random_policy(matrix: Matrix) -> Row:
    """Expected accuracy of a plan drawn uniformly for each problem."""
    records = [list(records.values()) for records in matrix.problems]
    return row("random policy", records, dict.fromkeys(matrix.kinds, "any"))
