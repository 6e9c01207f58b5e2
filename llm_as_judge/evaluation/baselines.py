"""Baselines for the learned policy, on the same problems and the same executor.

Every named shape (``workflow.shapes``) runs once on every problem. The rows come from that matrix: a single call, the
best single shape, a random one, and the best shape of each domain and of each dataset (oracles). The best shape and the
oracles are chosen on the problems they are measured on, which favours them.
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
from llm_as_judge.evaluation.records import Ledger
from llm_as_judge.evaluation.summary import divided, mean_score, right
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.types import DOMAINS, Domain, Group, Kind, Problem, Question, in_order
from llm_as_judge.workflow.shapes import SHAPES, workflow

DIRECT = "direct"
ORACLE, DATASET_ORACLE = "per-domain oracle", "per-dataset oracle"
#: What divides the questions that may have different shapes.
Key = Callable[[Question], str]
#: Opens the ledger of a method, named by what decides its records.
Opener = Callable[[str, Sequence[str]], AbstractContextManager[Ledger | None]]


@dataclass(frozen=True, slots=True)
class Method:
    """One method on all problems; tokens, cost and seconds are means over workflows without infrastructure faults."""

    name: str
    shape: Mapping[str, str]  # of each domain or dataset; empty for a policy
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
    lint_valid: float  # share without a fatal finding, whether or not they ran to an answer

    def as_json(self) -> dict[str, Any]:
        costs = {"executor_tokens": self.tokens, "cost": self.cost, "seconds": self.seconds, "shape": self.shape}
        shares = as_json({"overall": self.overall, **self.domains, "ran": self.ran}) | {"lint_valid": self.lint_valid}
        score = {"score": self.score.value} if self.score else {}
        return {**shares, **score, "datasets": as_json(self.datasets), **costs, "without_operators": self.idle}


def row(name: str, groups: Sequence[Group], shape: Mapping[str, str] | None = None) -> Method:
    """Make a row of some rollouts for each problem."""
    shares = right(groups)
    domains = {domain: estimate(right(own)) for domain, own in divided(groups, "domain").items()}
    datasets = {dataset: estimate(right(own)) for dataset, own in divided(groups, "dataset").items()}
    ran = [rollout for group in groups for rollout in group.rollouts if rollout.execution.outcome != "fault"]
    answered = estimate([mean([float(r.valid) for r in group.rollouts]) for group in groups])
    costs = [mean([getattr(r, kind) for r in ran]) for kind in ("tokens", "cost", "seconds")]
    costs.append(mean([float(not rollout.execution.calls) for rollout in ran]))
    costs.append(mean([float(rollout.execution.outcome != "invalid") for rollout in ran]))
    return Method(name, shape or {}, shares, estimate(shares), mean_score(groups), domains, datasets, answered, *costs)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Several shapes on the same problems, a rollout of each on each."""

    evaluations: Mapping[str, Sequence[Group]]

    @property
    def problems(self) -> list[Group]:
        """Each problem with the rollouts of all shapes, in their order."""
        columns = zip(*self.evaluations.values(), strict=True)
        return [Group(own[0].problem, [rollout for group in own for rollout in group.rollouts]) for own in columns]

    @property
    def kinds(self) -> dict[Domain, Kind]:
        """The domains, each with its kind."""
        there = {group.problem.question.domain: group.problem.question.kind for group in self.problems}
        return {d: there[d] for d in in_order(there)}

    def accuracies(self) -> dict[str, dict[Domain, float]]:
        return {name: {d: e.value for d, e in self.everywhere("", name).domains.items()} for name in self.evaluations}

    def best(self, key: Key = lambda question: "") -> dict[str, str]:
        """Find the shape with the highest accuracy in each group of problems; of several the one with the best mean
        score, then the cheapest; unscored ones last.
        """

        def worth(shape: str, of: str) -> tuple[float, float, float]:
            found = row(shape, [group for group in self.evaluations[shape] if key(group.problem.question) == of])
            accuracy, score = found.overall.value, found.score.value if found.score else 0.0
            return (-1.0, 0.0, 0.0) if math.isnan(accuracy) else (accuracy, score, -found.tokens)

        found = dict.fromkeys(key(group.problem.question) for group in self.problems)
        return {of: max(self.evaluations, key=lambda shape: worth(shape, of)) for of in found}

    def row(self, name: str, shape: Mapping[str, str], key: Key = attrgetter("domain")) -> Method:
        """Make a row of the given shape of each group of problems."""
        shapes = [shape[key(group.problem.question)] for group in self.problems]
        return row(name, [self.evaluations[of][place] for place, of in enumerate(shapes)], shape)

    def everywhere(self, name: str, shape: str) -> Method:
        return self.row(name, dict.fromkeys(self.kinds, shape))


async def measure(
    problems: Sequence[Problem], parts: RolloutParts, progress: Callable[[int, int], None] = lambda done, total: None,
    shapes: Collection[str] = tuple(SHAPES), log: Opener = lambda shape, texts: nullcontext(),
) -> Matrix:  # fmt: skip
    """Run every shape on every problem; ``log`` opens the ledger of each.

    Of few problems several shapes run at once, so that the executor has full batches.
    """
    together = asyncio.Semaphore(max(1, parts.concurrency // max(1, len(problems))))
    finished = itertools.count(1)

    async def one(shape: str) -> Sequence[Group]:
        author = Given(lambda question: workflow(SHAPES[shape], question.kind))
        async with together:
            with log(shape, [workflow(SHAPES[shape], domain) for domain in DOMAINS]) as known:
                groups = await evaluate(problems, author, parts, log=known)
        progress(next(finished), len(shapes))
        return groups

    return Matrix(dict(zip(shapes, await all_of(map(one, shapes)), strict=True)))


def rows(matrix: Matrix) -> list[Method]:
    """Return the baseline rows, or only the first if only that shape was measured; none for an empty matrix."""
    if not matrix.evaluations:
        return []
    single = matrix.everywhere("single call everywhere", DIRECT)
    if list(matrix.evaluations) == [DIRECT]:
        return [single]
    everywhere = matrix.everywhere("best single workflow everywhere", matrix.best()[""])
    return [single, everywhere, random_policy(matrix), *oracles(matrix)]


def oracles(matrix: Matrix) -> list[Method]:
    """Find the best shape of each domain and, if there are more datasets than domains, of each dataset."""
    found = [matrix.row(ORACLE, matrix.best(attrgetter("domain")))]
    best = matrix.best(attrgetter("dataset"))
    return [*found, matrix.row(DATASET_ORACLE, best, attrgetter("dataset"))] if len(best) > len(matrix.kinds) else found


def random_policy(matrix: Matrix) -> Method:
    """Compute the expected accuracy of a shape drawn uniformly for each problem."""
    return row("random policy", matrix.problems, dict.fromkeys(matrix.kinds, "any"))
