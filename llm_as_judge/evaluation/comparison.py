"""A policy compared with other methods on the same problems and executor; differences are paired by problem.

Rows except those of policies mostly come from one matrix of shapes (``baselines``); no workflow runs twice. The oracles
choose on the problems they are measured on: they are upper bounds. The best single workflow is chosen on training
problems (``commands.compare``).

A full comparison runs every shape on every held-out problem, which a slow or dear executor forbids. ``chosen_rows``
runs only methods that are chosen on a few training problems.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from random import Random
from typing import Any, Literal

from llm_as_judge.evaluation import baselines
from llm_as_judge.evaluation.baselines import Matrix, Method, Opener, oracles, random_policy, row
from llm_as_judge.evaluation.evaluate import Given, evaluate
from llm_as_judge.evaluation.intervals import Estimate, paired_difference
from llm_as_judge.evaluation.voting import DRAFTS
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.types import DOMAINS, Group, Kind, Problem, Question, Rollout
from llm_as_judge.workflow.shapes import SHAPES, workflow

SINGLE_CALL = "single call (IO)"
UNTRAINED, WARMED_UP, TRAINED = "untrained policy", "after the warm-up", "trained policy"
CONSTANT, SELF_CONSISTENCY = "best constant answer per dataset", "self-consistency"
BEST_SINGLE, PROBLEM_ORACLE = "best single workflow on training problems", "per-problem oracle"
BOUNDS = (baselines.ORACLE, baselines.DATASET_ORACLE, PROBLEM_ORACLE)

#: The shapes that AFlow's search starts from.
FIRST_ROUND: Mapping[Kind, str] = {"math": "direct", "code": "code", "qa": "direct"}
#: The shape of each domain, chosen without looking at results.
METHODS: Mapping[str, Mapping[Kind, str]] = {
    SINGLE_CALL: dict.fromkeys(DOMAINS, "direct"),
    "chain of thought": dict.fromkeys(DOMAINS, "answer"),
    "self-refine": dict.fromkeys(DOMAINS, "answer_review"),
    "AFlow's first round": FIRST_ROUND,
    "hand-written for each domain": {"math": "program", "code": "code_test", "qa": "answer"},
}
#: The shapes to choose from.
CANDIDATES = ("direct", "answer", "answer_review", "program", "code", "code_test")
SINGLE, BY_DOMAIN, RANDOM = "single call", "best workflow of each domain on training problems", "random policy"


@dataclass(frozen=True, slots=True)
class Compared:
    """``difference``: the policy minus this row, paired by problem; None for the policy itself."""

    row: Method
    difference: Estimate | None

    @property
    def bound(self) -> bool:
        """Whether the choice needed the results themselves."""
        return self.row.name in BOUNDS

    def as_json(self) -> dict[str, Any]:
        own = self.difference
        paired = own and {"value": own.value, "interval": [own.low, own.high], "problems": own.n}
        return {"name": self.row.name, **self.row.as_json(), "difference": paired}


def compare(
    matrix: Matrix | None, policies: Mapping[str, Sequence[Group]], best: str, further: Sequence[Method] = ()
) -> list[Compared]:
    """Build the rows in the order of the table. The last of ``policies`` is what the others are compared with; ``best``
    is the shape with the highest accuracy on training problems; ``further`` are rows that are not from the matrix. A
    method that needs an unmeasured shape has no row, and without a matrix there are only ``further`` and ``policies``.
    """
    measured = [row(name, groups) for name, groups in policies.items()]
    made = [*further, *measured]
    if matrix is not None:
        shapes = {name: {d: of[kind] for d, kind in matrix.kinds.items()} for name, of in METHODS.items()}
        known = [matrix.row(name, own) for name, own in shapes.items() if {*own.values()} <= {*matrix.evaluations}]
        made = [*further, *known, random_policy(matrix), matrix.everywhere(BEST_SINGLE, best)]
        made += [*measured, *oracles(matrix), problem_oracle(matrix)]
    last = measured[-1]
    return [Compared(one, None if one is last else paired_difference(last.by_problem, one.by_problem)) for one in made]


def problem_oracle(matrix: Matrix) -> Method:
    """Choose the cheapest correct shape of each problem, or the cheapest of the best score if none is correct."""

    def cost(rollout: Rollout) -> tuple[bool, bool, float, int]:
        verdict = rollout.verdict
        return verdict.correct is None, not verdict.correct, -(verdict.score or 0.0), rollout.tokens

    best = [Group(group.problem, [min(group.rollouts, key=cost)]) for group in matrix.problems]
    return row(PROBLEM_ORACLE, best, dict.fromkeys(matrix.kinds, "any"))


def front(compared: Sequence[Compared], kind: Literal["tokens", "cost"]) -> list[Method]:
    """Find the Pareto front by accuracy and cost, cheapest first, without the bounds and what solves nothing."""
    scored = [c.row for c in compared if not c.bound and c.row.overall.n and c.row.overall.value]
    found: list[Method] = []
    for one in sorted(scored, key=lambda row: (getattr(row, kind), -row.overall.value)):
        if not found or one.overall.value > found[-1].overall.value:
            found.append(one)
    return found


async def chosen_rows(training: Matrix, problems: Sequence[Problem], parts: RolloutParts, log: Opener) -> list[Method]:
    """Return the rows on ``problems``; a domain without training problems gets the shape ``answer``."""
    domains = {problem.question.domain: problem.question.kind for problem in problems}
    shapes = list(training.evaluations)
    by_domain = training.best(attrgetter("domain"))
    methods: Mapping[str, Mapping[str, str]] = {
        SINGLE: {domain: DRAFTS[kind] for domain, kind in domains.items()},
        BEST_SINGLE: dict.fromkeys(domains, training.best()[""]),
        BY_DOMAIN: {domain: by_domain.get(domain, "answer") for domain in domains},
        RANDOM: {},
    }
    rows = []
    for name, shape_of in methods.items():

        def text(question: Question, shape_of: Mapping[str, str] = shape_of) -> str:
            shape = shape_of.get(question.domain) or Random(f"plan/{question.id}").choice(shapes)
            return workflow(SHAPES[shape], question.kind)

        with log(name, [f"{domain}: {shape}" for domain, shape in shape_of.items()] or shapes) as ledger:
            groups = await evaluate(problems, Given(text), parts, log=ledger)
        rows.append(row(name, groups, shape_of or dict.fromkeys(domains, "any")))
    return rows
