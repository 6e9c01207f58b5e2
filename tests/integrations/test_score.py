"""``Scorer``: one problem and one text in, the same rollout as in the package's own training out."""

import asyncio
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from helpers.knowing import Knowing, Loads
from helpers.samples import write_lines

from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.assembly.services import open_services
from llm_as_judge.data.forms import to_record
from llm_as_judge.errors import DataError
from llm_as_judge.integrations.rows import heldout_rows, training_rows
from llm_as_judge.integrations.score import Scorer, problem_of
from llm_as_judge.rl.rollout import collect
from llm_as_judge.types import Completion
from llm_as_judge.workflow.shapes import SHAPES, workflow


def text(plan: str) -> str:
    return workflow(SHAPES[plan], "math")


async def test_right_wrong_invalid_and_unscored_as_in_training(executor: Knowing, config: Loads) -> None:
    settings = config()
    (row,) = training_rows(settings, 1)
    executor.tell(problem := problem_of(row))
    async with open_services(settings) as services:
        completion = Completion(text("program"), (), (), (), "stop")
        (group,) = await collect([problem], [[completion]], services.training)
    with closing(Scorer(settings)) as scorer:
        right, wrong, invalid, cut = await asyncio.gather(
            scorer.score(row, text("program")), scorer.score(row, text("direct")), scorer.score(row, "import os"),
            scorer.score(row, text("program"), finish_reason="length"),
        )  # fmt: skip
        assert right.verdict.correct is True and right.valid and right.execution.tokens == 30
        for rollout in (right, await scorer.score(to_record(problem), text("program"))):
            assert (rollout.reward, rollout.verdict) == (group.rollouts[0].reward, group.rollouts[0].verdict)
            assert rollout.execution.answer == group.rollouts[0].execution.answer
        assert set(right.reward.terms) == {"correctness", "efficiency", "simplicity", "format", "repetition"}
        assert right.reward.total is not None and right.reward.total > 8
        assert wrong.verdict.correct is False and cut.trouble == "truncated"
        assert invalid.execution.outcome == "invalid"
        floor = invalid.reward.total
        assert wrong.reward.total is not None and floor is not None
        assert floor == cut.reward.total and floor < wrong.reward.total < 0
        executor.down = True
        fault = await scorer.score(row, text("program"))
        assert fault.reward.total is None and fault.verdict.correct is None and "500" in fault.trouble
        executor.down = False
        assert (await scorer.score(row, text("program"))).reward == right.reward


def test_any_thread_may_score_in_one_service(executor: Knowing, config: Loads, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr("llm_as_judge.integrations.score.open_services", lambda c: opened.append(c) or open_services(c))
    settings = config()
    rows = training_rows(settings, 3)
    executor.tell(*map(problem_of, rows))
    with closing(Scorer(settings)) as scorer, ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda row: asyncio.run(scorer.score(row, text("program"))), rows))
        assert [rollout.verdict.correct for rollout in found] == [True] * 3 and len(opened) == 1
        copy = pickle.loads(pickle.dumps(scorer))
        assert copy.config == settings


def test_rows_are_in_the_order_of_training_and_read_back_unchanged(config: Loads) -> None:
    settings = config("domain_ratios={math: 0.4, code: 0.3, qa: 0.3}", "max_steps=2", "rollout_batch_size=5")
    rows = training_rows(settings)
    assert [problem_of(row) for row in rows] == open_problems(settings).sampler.sample(10)
    for row in rows + heldout_rows(settings, 4):
        problem = problem_of(row)
        shown = "".join(message["content"] for message in row["prompt"])
        assert problem.question.text in shown and row["prompt"][-1]["role"] == "user"
        assert not problem.reference.tests or problem.reference.tests not in shown
    assert len(heldout_rows(settings, 4)) == 4


def test_rows_without_a_problem_are_refused() -> None:
    for record in ("not JSON", "[]", '{"problem": "1 + 1?"}', 5):
        with pytest.raises(DataError):
            problem_of({"record": record})


@pytest.mark.parametrize("rows", [training_rows, heldout_rows])
async def test_rows_with_tests_that_prove_nothing_are_refused(rows: Callable[..., object], config: Loads) -> None:
    for file, word in (("train", "double"), ("test", "triple")):
        texts = f"assert f(2) == len('{word}')", f"assert (f(3) == len('{word}'), 'wrong')"
        records = [{"problem": f"{word}: {t}", "type": "code", "entry_point": "f", "tests": t} for t in texts]
        write_lines(Path(f"{file}.jsonl"), records)
    own = config("train_dataset=train.jsonl", "test_dataset=test.jsonl", "domain_ratios={math: 0, code: 1, qa: 0}")
    with pytest.raises(DataError, match=r"t(rain|est).jsonl:2\b.*returns None"):
        rows(own, 2)
