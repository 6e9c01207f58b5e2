"""``Solver``: many problems at once, written for in batches, each with its own answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.evaluation.evaluate import PolicyAuthor
from llm_as_judge.solver import Draw, Solver
from llm_as_judge.types import Execution, Question
from llm_as_judge.workflow.run import WorkflowRunner

APPLES = "Tom has {} apples. He buys 4 more. How many apples does Tom have now?"


@pytest.fixture
def settings(address: str) -> list[str]:
    """The embedded executor, and a judge that does not exist: a solver needs none."""
    return [f"executor.base_url={address}", "judge.provider=openai", "judge.base_url=http://127.0.0.1:9/v1"]


async def test_waiting_problems_are_written_for_together(settings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    batches, write = [], PolicyAuthor.write
    greedy = Draw(temperature=0, seed=0)

    def counted(self: PolicyAuthor, questions, samples=1, start=0):  # type: ignore[no-untyped-def]
        batches.append((len(questions), self.config.generation.eval_temperature, start))
        return write(self, questions, samples, start)

    monkeypatch.setattr(PolicyAuthor, "write", counted)
    async with Solver(overrides=settings) as solver:
        numbers = list(range(3, 15))
        alone = await solver.solve(APPLES.format(3), draw=greedy)
        assert alone.answer == "7" and "class Workflow" in alone.workflow
        assert alone.prompt_tokens > 100 and alone.completion_tokens > 20
        work = [solver.solve(APPLES.format(n), draw=greedy) for n in numbers]
        solutions = await asyncio.gather(*work, solver.solve("x " * 20_000, draw=greedy), return_exceptions=True)
        assert isinstance(solutions[-1], DataError) and "training.prompt_max_length=1024" in str(solutions[-1])
        assert solutions[0].workflow == alone.workflow  # type: ignore[union-attr]
        assert [s.execution.outcome for s in solutions[:-1]].count("finished") > 9  # type: ignore[union-attr]
        assert sum(size for size, _, _ in batches) == 2 + len(numbers) and len(batches) < 6
        assert {(temperature, start) for _, temperature, start in batches} == {(0, 0)}
        batches.clear()
        await asyncio.gather(*(solver.solve(APPLES.format(5), draw=Draw()) for _ in range(2)))
        await solver.solve(APPLES.format(5))
        starts = [start for _, _, start in batches]
        assert 0 not in starts[:-1] and starts[-1] == 0, "a question without a seed is drawn anew"
        with pytest.raises(ConfigError, match="math, code, qa"):
            await solver.solve("x", "art")  # type: ignore[arg-type]
        with pytest.raises(DataError, match="empty"):
            await solver.solve(" ")


async def test_a_failure_closes_services(settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = list[str]()

    @asynccontextmanager
    async def watched(config: Config, judging: bool) -> AsyncIterator[SimpleNamespace]:
        try:
            yield SimpleNamespace(runner=None)
        finally:
            events.append("closed")

    monkeypatch.setattr("llm_as_judge.solver.open_services", watched)
    with pytest.raises(DataError, match="holds no adapter"):
        await Solver(overrides=settings, checkpoint=tmp_path).__aenter__()
    assert events == ["closed"]


async def test_a_cancelled_caller_does_not_stop_others(settings: list[str]) -> None:
    async with Solver(overrides=settings) as solver:
        first = asyncio.create_task(solver.solve(APPLES.format(3)))
        second = asyncio.create_task(solver.solve(APPLES.format(4)))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).workflow
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_what_fails_is_repaired(settings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = ["This workflow failed:\n- <|im_end|> line 3", "This workflow failed:\n- line 4"]

    async def complaint(self: WorkflowRunner, execution: Execution, question: Question) -> str:
        complaints.append(question.text)
        return told[min(complaints.count(question.text), len(told)) - 1]

    complaints = list[str]()
    async with Solver(overrides=[*settings, "workflow.repairs=2"]) as solver:
        first = await solver.solve(APPLES.format(3))
        assert not first.attempts and first.answer == "7", "nothing is wrong with it"
        monkeypatch.setattr(WorkflowRunner, "feedback", complaint)
        solution, other = await asyncio.gather(*(solver.solve(APPLES.format(n)) for n in (3, 5)))
        assert [attempt.told for attempt in solution.attempts] == told
        assert len(solution.attempts) == len(other.attempts) == 2
        assert solution.attempts[0].workflow == first.workflow
        assert solution.prompt_tokens > 3 * first.prompt_tokens
        assert solution.as_json()["executor_tokens"] == sum(run.tokens for run in solution.runs)
        assert sum(solution.tokens()) > sum(first.tokens())
