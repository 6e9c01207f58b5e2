"""Baselines: rows of a matrix small enough to compute by hand."""

from collections.abc import Sequence

import pytest
from helpers.rollouts import Bench, alone, problem, rollout

from llm_as_judge.evaluation.baselines import Matrix, Row, measure, row, rows
from llm_as_judge.evaluation.comparison import Compared
from llm_as_judge.types import Outcome, Question
from llm_as_judge.views.terminal import comparison_table
from llm_as_judge.workflow.shapes import SHAPES, workflow

PROBLEMS = [problem("m1", "math"), problem("m2", "math"), problem("c1", "code"), problem("q1", "qa")]
TOKENS = {"direct": 10, "program": 20, "answer_vote": 60}


def matrix(**right: Sequence[bool | None]) -> Matrix:
    found = {}
    for shape, marks in right.items():
        ran = [rollout(p, mark, shape=shape, tokens=TOKENS[shape]) for p, mark in zip(PROBLEMS, marks, strict=True)]
        found[shape] = alone(ran)
    return Matrix(found)


#                            m1     m2     c1     q1
MATRIX = matrix(direct=  (True,  False, False, False),
                program= (True,  True,  False, False),
                answer_vote=    (False, False, True,  True))  # fmt: skip


def by_name(made: Matrix) -> dict[str, Row]:
    return {row.name: row for row in rows(made)}


def test_every_row_is_what_its_name_says_without_unscored_answers() -> None:
    assert MATRIX.accuracies()["program"] == {"math": 1, "code": 0, "qa": 0}
    made = by_name(MATRIX)
    single = made["single call everywhere"]
    assert (single.overall.value, single.tokens, set(single.shape.values())) == (0.25, 10, {"direct"})
    assert (single.overall.low, single.overall.high) == pytest.approx((0.0456, 0.6994), abs=5e-5)
    # m1 2/3, m2 1/3, c1 1/3, q1 1/3: the mean over shapes, then over problems
    drawn = made["random policy"]
    assert (drawn.overall.value, drawn.tokens) == (pytest.approx(5 / 12), 30)
    assert {d: e.value for d, e in drawn.domains.items()} == pytest.approx({"math": 0.5, "code": 1 / 3, "qa": 1 / 3})
    oracle = made["per-domain oracle"]
    assert oracle.shape == {"math": "program", "code": "answer_vote", "qa": "answer_vote"}
    assert (oracle.overall.value, oracle.tokens) == (1.0, (20 + 20 + 60 + 60) / 4)
    best = by_name(matrix(direct=(True, False, False, False), answer_vote=(False, True, True, True)))
    everywhere = best["best single workflow everywhere"]
    assert (set(everywhere.shape.values()), everywhere.overall.value, everywhere.tokens) == ({"answer_vote"}, 0.75, 60)
    assert [row.name for row in rows(matrix(direct=(True, False, False, False)))] == ["single call everywhere"]
    assert rows(Matrix({})) == [], "nothing was measured"
    found = by_name(matrix(direct=(True, None, False, False), answer_vote=(False, True, False, True)))
    # m1 1/2, m2 1 (direct was unscored), c1 0, q1 1/2
    assert found["random policy"].overall.value == pytest.approx(1 / 2)
    found = by_name(matrix(direct=(None, None, None, None), program=(True, True, False, False)))
    for name in ("per-domain oracle", "best single workflow everywhere"):
        assert set(found[name].shape.values()) == {"program"}


def test_the_table_tells_lint_valid_workflows_from_those_that_ran_to_an_answer() -> None:
    ended: list[tuple[bool | None, Outcome]] = [
        (True, "finished"),
        (False, "invalid"),
        (False, "raised"),
        (None, "fault"),
    ]
    groups = alone([rollout(p, right, outcome=end) for p, (right, end) in zip(PROBLEMS, ended, strict=True)])
    made = Compared(row("policy", groups), None)
    headings, _, line = ([c.strip() for c in li.split("|")] for li in comparison_table([made]).splitlines())
    cells = dict(zip(headings, line, strict=True))
    assert [cells[name] for name in ("lint-valid %", "ran to an answer %", "no operator %")] == ["67", "25", "0"]
    assert made.as_json()["lint_valid"] == 2 / 3


async def test_every_shape_runs_on_every_problem() -> None:
    def answer(source: str, question: Question) -> str:
        return f"answer {question.id}" if source == workflow(SHAPES["answer_vote"], question.domain) else "?"

    bench, seen = Bench(answer), list[tuple[int, int]]()
    made = await measure(PROBLEMS, bench.parts(), lambda *done: seen.append(done))
    assert seen == [(done, len(SHAPES)) for done in range(1, len(SHAPES) + 1)] and list(made.evaluations) == list(
        SHAPES
    )
    assert sorted(bench.runs) == sorted(
        (workflow(shape, p.question.domain), p.question.id) for shape in SHAPES.values() for p in PROBLEMS
    )
    assert made.accuracies()["answer_vote"] == {"math": 1.0, "code": 1.0, "qa": 1.0}
    assert made.accuracies()["direct"] == {"math": 0.0, "code": 0.0, "qa": 0.0}
