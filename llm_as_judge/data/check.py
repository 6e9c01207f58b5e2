"""The gold self-check: is every problem's own answer judged correct by the project's own judge?

Answers by the rules alone, code by running it in the sandbox with the hidden tests; the public tests shown to the
policy must hold for the gold solution as well. A gold that fails is a fault of parser, judge or benchmark. A code
problem of a user's own has no solution to run, so its tests are run on one that does nothing, which must not pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from llm_as_judge.data.benchmarks import custom
from llm_as_judge.data.catalog import DATASETS, Dataset
from llm_as_judge.data.load import recognise
from llm_as_judge.data.reading import Raw, files_in, read
from llm_as_judge.errors import DataError
from llm_as_judge.judging.judge import RULES, CodeJudge, Judge
from llm_as_judge.sandbox.public_test import RunsCode, run_assert
from llm_as_judge.types import Problem, Verdict

_CONCURRENT = 8


class Sandbox(RunsCode, CodeJudge, Protocol):
    """Runs single asserts, and judges a solution by its hidden tests."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A gold that was not judged correct, or a record without a problem; ``id`` is the problem's, else its place."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class GoldReport:
    """``golds`` were judged over ``records``; one record may have several."""

    records: int
    golds: int
    failures: tuple[Failure, ...]


async def check_golds(
    paths: Iterable[Path],
    dataset: Dataset | None,
    sandbox: Sandbox,
    fields: Mapping[str, Sequence[str]] = custom.FIELDS,
) -> GoldReport:
    """Judge the golds of every record in ``paths``, which are of ``dataset`` or, with None, of any kind, ``fields``
    spelt as those say. Raises ``DataError`` where there is no such file.
    """
    judge, gate = Judge(RULES, None, sandbox), asyncio.Semaphore(_CONCURRENT)
    records = golds = 0
    failures: list[Failure] = []

    async def one(problem: Problem, gold: str) -> list[Failure]:
        async with gate:
            verdict = await judge.verdict(problem, gold)
            wrong = [] if verdict.correct else [Failure(problem.question.id, _told(verdict, gold))]
            for test in problem.question.public_tests:
                source = f"{problem.reference.prelude}\n\n{gold}\n\n{_setup(problem)}"
                result = await run_assert(sandbox, source, test)
                if not result.passed:
                    wrong.append(Failure(problem.question.id, f"public test {test}: {result.error}, got {result.got}"))
            return wrong

    async def idle(problem: Problem) -> list[Failure]:
        async with gate:
            verdict = await judge.verdict(problem, f"def {problem.question.entry_point}(*args, **kwargs):\n    pass")
        if verdict.correct is False:
            return []
        told = "a function that does nothing passes the tests" if verdict.correct else verdict.reason
        return [Failure(problem.question.id, told)]

    running: set[asyncio.Task[list[Failure]]] = set()
    for path in paths:
        for file in files_in(path):
            for raw in read(file):
                records += 1
                try:
                    problem, answers = _parsed(dataset, raw, fields)
                except DataError as error:
                    failures.append(Failure(f"{file}:{raw.place}", str(error)))
                    continue
                golds += len(answers)
                running |= {asyncio.create_task(one(problem, gold)) for gold in answers}
                if not answers:
                    running.add(asyncio.create_task(idle(problem)))
                if len(running) >= 8 * _CONCURRENT:
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    failures += [failure for task in done for failure in task.result()]
    failures += [failure for failures_of_one in await asyncio.gather(*running) for failure in failures_of_one]
    return GoldReport(records, golds, tuple(sorted(failures, key=lambda failure: failure.id)))


def _parsed(dataset: Dataset | None, raw: Raw, fields: Mapping[str, Sequence[str]]) -> tuple[Problem, tuple[str, ...]]:
    if raw.record is None:
        raise DataError(raw.reason)
    dataset = dataset or DATASETS.get(recognise(raw.record, fields))
    if dataset:
        return dataset.parse(raw.record), dataset.golds(raw.record)
    problem = custom.parse(raw.record, fields)
    return problem, problem.reference.answers or (("unanswerable",) if problem.reference.unanswerable else ())


def _setup(problem: Problem) -> str:
    """What the hidden tests of MBPP define before their first assert: public asserts may need it too."""
    return problem.reference.tests.partition("assert ")[0] if problem.question.dataset == "mbpp" else ""


def _told(verdict: Verdict, gold: str) -> str:
    return f"{verdict.reason}; the gold is {gold[-80:]!r}"
