"""Baseline rows of a matrix small enough to compute by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from helpers.rollouts import problem, record_of, rollout

from llm_as_judge.evaluation import baselines
from llm_as_judge.evaluation.baselines import Matrix, Row, rows
from llm_as_judge.evaluation.evaluate import Evaluation
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.types import Execution, Problem, Question, Reward, Verdict
from llm_as_judge.workflow.shapes import SHAPES, workflow

PROBLEMS = [problem("m1", "math"), problem("m2", "math"), problem("c1", "code"), problem("q1", "qa")]
TOKENS = {"direct": 10, "program": 20, "answer_vote": 60}


def matrix(**right: Sequence[bool | None]) -> Matrix:
    return Matrix({plan: evaluation(plan, marks) for plan, marks in right.items()})


def evaluation(plan: str, marks: Sequence[bool | None]) -> Evaluation:
    ran = [rollout(p, mark, plan=plan, tokens=TOKENS[plan]) for p, mark in zip(PROBLEMS, marks, strict=False)]
    return Evaluation([record_of(place, 0, one) for place, one in enumerate(ran)], ran)


#                            m1     m2     c1     q1
MATRIX = matrix(direct=  (True,  False, False, False),
                program= (True,  True,  False, False),
                answer_vote=    (False, False, True,  True))  # fmt: skip


def by_name(made: Matrix) -> dict[str, Row]:
    return {row.name: row for row in rows(made)}


def test_accuracies_by_plan_and_domain() -> None:
    assert MATRIX.accuracies() == {
        "direct": {"math": 0.5, "code": 0, "qa": 0},
        "program": {"math": 1, "code": 0, "qa": 0},
        "answer_vote": {"math": 0, "code": 1, "qa": 1},
    }


def test_the_single_call_alone_is_one_row() -> None:
    (row,) = rows(matrix(direct=(True, False, False, False)))
    assert (row.name, row.overall.value) == ("single call everywhere", 0.25)
    assert rows(Matrix({})) == [], "nothing was measured"


def test_the_single_call_is_the_plan_direct() -> None:
    row = by_name(MATRIX)["single call everywhere"]
    assert (row.overall.value, row.tokens, set(row.plan.values())) == (0.25, 10, {"direct"})
    assert (row.overall.low, row.overall.high) == pytest.approx((0.0456, 0.6994), abs=5e-5)
    assert {d: e.value for d, e in row.domains.items()} == {"math": 0.5, "code": 0, "qa": 0}


def test_the_best_single_workflow_is_one_plan_everywhere() -> None:
    row = by_name(matrix(direct=(True, False, False, False), answer_vote=(False, True, True, True)))[
        "best single workflow everywhere"
    ]
    assert (set(row.plan.values()), row.overall.value, row.tokens) == ({"answer_vote"}, 0.75, 60)


def test_the_random_row_is_the_mean_over_plans_then_over_problems() -> None:
    row = by_name(MATRIX)["random policy"]
    # m1 2/3, m2 1/3, c1 1/3, q1 1/3
    assert row.overall.value == pytest.approx(5 / 12)
    assert {d: e.value for d, e in row.domains.items()} == pytest.approx({"math": 0.5, "code": 1 / 3, "qa": 1 / 3})
    assert row.overall.low == pytest.approx(1 / 3) and 5 / 12 < row.overall.high <= 2 / 3
    assert row.tokens == 30


def test_unscored_answers_are_left_out_of_the_random_row() -> None:
    row = by_name(matrix(direct=(True, None, False, False), answer_vote=(False, True, False, True)))["random policy"]
    # m1 1/2, m2 1 (direct was unscored), c1 0, q1 1/2
    assert row.overall.value == pytest.approx(1 / 2)


def test_the_oracle_takes_the_best_plan_of_each_domain() -> None:
    row = by_name(MATRIX)["per-domain oracle"]
    assert row.plan == {"math": "program", "code": "answer_vote", "qa": "answer_vote"}
    assert (row.overall.value, row.tokens) == (1.0, (20 + 20 + 60 + 60) / 4)


def test_an_unscored_plan_is_not_the_best() -> None:
    found = by_name(matrix(direct=(None, None, None, None), program=(True, True, False, False)))
    assert set(found["per-domain oracle"].plan.values()) == {"program"}
    assert set(found["best single workflow everywhere"].plan.values()) == {"program"}


async def test_every_plan_runs_on_every_problem() -> None:
    ran: list[tuple[str, str]] = []

    class Bench:
        async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
            ran.append((source, question.id))
            return Execution("finished", source)

        async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
            return Verdict(answer == workflow(SHAPES["answer_vote"], problem.question.domain), "rules")

        def __call__(self, *parts: object) -> Reward:
            return Reward(1.0)

    bench, seen = Bench(), []
    made = await baselines.measure(PROBLEMS, RolloutParts(bench, bench, bench), seen.append)
    assert seen == list(range(1, len(SHAPES) + 1)) and list(made.evaluations) == list(SHAPES)
    assert len(made.rollouts) == len(SHAPES) * len(PROBLEMS)
    assert sorted(ran) == sorted(
        (workflow(plan, p.question.domain), p.question.id) for plan in SHAPES.values() for p in PROBLEMS
    )
    assert made.accuracies()["answer_vote"] == {"math": 1.0, "code": 1.0, "qa": 1.0}
    assert set(by_name(made)["best single workflow everywhere"].plan.values()) == {"answer_vote"}
