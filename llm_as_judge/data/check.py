"""Checks that the judge accepts every problem's reference answer.

Answers are judged by the rules alone, code by running the hidden tests in the sandbox. The public tests shown to the
policy must pass for the reference solution too. A rejected one is a fault of the parser, the judge or the benchmark.
Hidden tests must reject solutions that do nothing; runs refuse such problems before they begin (``refuse_vacuous``).
"""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from pathlib import Path

from llm_as_judge.data.benchmarks import custom
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.dataset import Dataset
from llm_as_judge.data.problems import recognise
from llm_as_judge.data.reading import Faults, files_in, read
from llm_as_judge.data.record import Record
from llm_as_judge.errors import DataError, SandboxFault
from llm_as_judge.judging.judge import OFFICIAL, Judge
from llm_as_judge.sandbox.code_verdict import vacuous
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.sandbox.public_test import run_assert
from llm_as_judge.types import Problem

_CONCURRENT = 16


@dataclass(frozen=True, slots=True)
class Failure:
    """A rejected gold or an unreadable record; ``id`` is the problem's id, or the record's file and place."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class GoldReport:
    """Number of records and of their golds (a record may have several), and what failed."""

    records: int
    golds: int
    failures: tuple[Failure, ...]


async def check_golds(paths: Iterable[Path], dataset: Dataset | None, sandbox: Sandbox) -> GoldReport:
    """Judge the golds of every record in ``paths``. ``dataset`` None: records of any kind.

    Raises ``DataError`` for a missing file.
    """
    judge = Judge(OFFICIAL, None, sandbox)
    records = golds = 0
    failures: list[Failure] = []
    checks: list[Awaitable[list[Failure]]] = []
    files = [file for path in paths for file in files_in(path)]
    empty = set(files)
    for file, place, record in ((one, *found) for one in files for found in read(one)):
        empty.discard(file)
        records += 1
        try:
            if isinstance(record, DataError):
                raise record
            problem, answers = _parsed(dataset, record)
        except DataError as error:
            failures.append(Failure(place, str(error)))
        else:
            golds += len(answers)
            checks += [_check(judge, sandbox, problem, gold) for gold in answers]
            checks += [_check_tests(sandbox, problem, place)] if problem.reference.tests else []
        if len(checks) >= _CONCURRENT:
            failures += [failure for found in await asyncio.gather(*checks) for failure in found]
            checks = []
        await asyncio.sleep(0)  # lets Ctrl-C through
    failures += [failure for found in await asyncio.gather(*checks) for failure in found]
    failures += [Failure(str(file), "no records") for file in empty]
    return GoldReport(records, golds, tuple(sorted(failures, key=lambda failure: failure.id)))


async def refuse_vacuous(problems: Iterable[Problem], sandbox: Sandbox) -> None:
    """Raises ``DataError`` with file and line of every problem whose hidden tests pass solutions that do nothing.

    Takes 1.7 s for 100 problems on two cores. Problems that were not read from a file are not checked.
    """
    distinct = {p.reference.tests: p for p in problems if p.place and p.reference.tests}
    found = await asyncio.gather(*(_vacuous(sandbox, problem) for problem in distinct.values()))
    faults = Faults()
    for problem, reason in zip(distinct.values(), found, strict=True):
        if reason:
            faults.add(problem.place, reason)
    if faults.count:
        raise DataError(str(faults))


async def _vacuous(sandbox: Sandbox, problem: Problem) -> str:
    """Why the hidden tests of a code problem prove nothing or cannot run, or ""."""
    reference, entry_point = problem.reference, problem.question.entry_point or ""
    try:
        found = await vacuous(sandbox, reference.tests, entry_point, reference.prelude)
    except DataError as error:
        return f"{problem.question.id}: {error}"
    return f"{problem.question.id}: line {found.line} of the tests: {found.reason}" if found else ""


async def _check_tests(sandbox: Sandbox, problem: Problem, place: str) -> list[Failure]:
    try:
        reason = await _vacuous(sandbox, problem)
    except SandboxFault as error:
        reason = str(error)
    return [Failure(place, reason)] if reason else []


async def _check(judge: Judge, sandbox: Sandbox, problem: Problem, gold: str) -> list[Failure]:
    """Whether the judge and the public tests accept ``gold``. Tests that cannot run are left to ``_check_tests``."""
    question = problem.question
    try:
        verdict = await judge.verdict(problem, gold)
    except DataError:
        return []
    reasons = [] if verdict.correct else [f"{verdict.reason}; the gold is {gold[-80:]!r}"]
    dataset = DATASETS.get(question.dataset)
    # Code before the first hidden assert, which public asserts may need too.
    setup = problem.reference.tests.partition("assert ")[0] if dataset and dataset.test_style == "asserts" else ""
    for test in question.public_tests:
        source = f"{problem.reference.prelude}\n\n{gold}\n\n{setup}"
        result = await run_assert(sandbox.run_code, source, test)
        if not result.passed:
            reasons.append(f"public test {test}: {result.error}, got {result.got}")
    return [Failure(question.id, reason) for reason in reasons]


def _parsed(dataset: Dataset | None, record: Record) -> tuple[Problem, tuple[str, ...]]:
    """The problem of a record, and replies that must be judged correct."""
    dataset = dataset or DATASETS.get(recognise(record))
    if dataset:
        return dataset.parse(record), dataset.golds(record)
    problem = custom.parse(record)
    return problem, problem.reference.answers or (("unanswerable",) if problem.reference.unanswerable else ())
