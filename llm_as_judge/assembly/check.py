"""Checks of problems, judges and own functions before a run, and of every problem's reference answer.

Answers are judged by the rules alone, code by running the hidden tests in the sandbox. The public tests shown to the
policy must pass for the reference solution too. A rejected one is a fault of the parser, the judge or the benchmark.
Hidden tests must reject a function that returns None; runs refuse such problems before they begin (``check_before``).
"""

import ast
import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from llm_as_judge.config.data import DataConfig
from llm_as_judge.data.code_tests import syntax_tree
from llm_as_judge.data.dataset import Dataset
from llm_as_judge.data.forms import NO_MAPPING, Forms
from llm_as_judge.data.reading import Faults, files_in, read, warn_untested
from llm_as_judge.data.record import Record
from llm_as_judge.errors import ConfigError, DataError, PromptRefused, SandboxFault, Untested
from llm_as_judge.judging.judge import OFFICIAL, Judge
from llm_as_judge.judging.own import AnyJudge, OwnJudge
from llm_as_judge.operators.prompts import prompts_of
from llm_as_judge.rewards.custom import CustomRewards
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.sandbox.public_test import run_assert
from llm_as_judge.types import Completion, Execution, Problem, Reward, Rollout, Verdict
from llm_as_judge.workflow.run import Executor
from llm_as_judge.workflow.shapes import SHAPES, workflow

_CONCURRENT = 16
_UNANSWERED = "give answers (data.fields names their column), or set judge.function=FILE:NAME or judge.rubric=FILE"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A rejected gold or an unreadable record; ``id`` is the problem's id, or the record's file and place."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class GoldReport:
    """Number of records and of their golds (a record may have several), and what failed."""

    records: int
    golds: int
    failures: tuple[Rejected, ...]


async def check_golds(
    paths: Iterable[Path], dataset: Dataset | None, sandbox: Sandbox, data: DataConfig = NO_MAPPING
) -> GoldReport:
    """Judge the golds of every record in ``paths``. ``dataset`` None: records of any kind.

    Raises ``DataError`` for a missing file.
    """
    judge = Judge(OFFICIAL, None, sandbox)
    records = golds = 0
    failures, untested = list[Rejected](), list[Rejected]()
    checks: list[Awaitable[list[Rejected]]] = []
    for file in [file for path in paths for file in files_in(path)]:
        before, forms = records, Forms(file, data)
        for place, record in read(file):
            records += 1
            try:
                if isinstance(record, DataError):
                    raise record
                problem, answers = _parsed(dataset, forms, record, place)
            except DataError as error:
                (untested if isinstance(error, Untested) else failures).append(Rejected(place, str(error)))
            else:
                golds += len(answers)
                checks += [_check(judge, sandbox, problem, gold) for gold in answers]
                checks += [_check_tests(sandbox, problem)] if problem.reference.tests else []
            if len(checks) >= _CONCURRENT:
                failures += [failure for found in await asyncio.gather(*checks) for failure in found]
                checks = []
            await asyncio.sleep(0)  # lets Ctrl-C through
        failures += [Rejected(str(file), "no records")] if records == before else []
    failures += [failure for found in await asyncio.gather(*checks) for failure in found]
    failures += untested if len(untested) == records else []
    warn_untested([f"{failure.id}: {failure.reason}" for failure in untested])
    return GoldReport(records, golds, tuple(sorted(failures, key=lambda failure: failure.id)))


async def check_before(
    problems: Iterable[Problem], sandbox: Sandbox, *judges: AnyJudge, extra: CustomRewards | None = None
) -> None:
    """Raise ``DataError`` with file and line for hidden tests that pass a function that returns None and for problems
    that one of ``judges`` has nothing to judge by; ``ConfigError`` for an own function that cannot be used.

    Takes 1.7 s for 100 problems with tests on two cores. Tests that were not read from a file are not checked.
    """
    problems, faults, cure = list(problems), Faults(), ""
    distinct = {p.reference.tests: p for p in problems if p.place and p.reference.tests}
    for found in await asyncio.gather(*(_check_tests(sandbox, problem) for problem in distinct.values())):
        for failure in found:
            faults.add(failure.id, failure.reason)
    if not all(isinstance(judge, OwnJudge) for judge in judges):
        for problem in problems:
            if not problem.reference.given:
                faults.add(problem.place or problem.question.id, "neither an answer nor tests")
                cure = f"\n{_UNANSWERED}"
    if faults.count:
        raise DataError(f"{faults}{cure}")
    for judge in judges:
        if isinstance(judge, OwnJudge) and (first := next(filter(judge.decides, problems), None)):
            await judge.try_out(first, workflow(SHAPES["direct"], first.question.kind))
    if extra and problems:
        text = workflow(SHAPES["direct"], problems[0].question.kind)
        completion, ran = Completion(text, (), (), (), "stop"), Execution("finished", problems[0].reference.first or "")
        await extra.try_out(Rollout(problems[0], completion, text, ran, Verdict(True, "none"), Reward(0.0)))


async def check_context(problems: Iterable[Problem], executors: Iterable[Executor]) -> None:
    """Raise ``ConfigError`` if an operator's prompt with a domain's longest problem does not fit a local executor."""
    if not (local := [one for one in executors if one.config.provider == "local"]):
        return
    longest = {p.question.domain: p for p in sorted(problems, key=lambda p: len(p.question.statement))}
    for llm, config in local:
        for problem in longest.values():
            prompt = prompts_of(config).answer_generate.format(input=problem.question.statement)
            try:
                await llm.chat(prompt, max_tokens=1)
            except PromptRefused as error:
                raise ConfigError(f"problem {problem.question.id} does not fit the executor: {error}") from error


async def prove_tests(sandbox: Sandbox, tests: str, entry_point: str, prelude: str = "") -> None:
    """Raise ``DataError`` if the tests also pass a function that returns None, and as ``Sandbox.verdict`` does; also
    ``SandboxFault``. Costs one verdict.
    """
    idle = f"def {entry_point}(*args, **kwargs):\n    return None\n"
    verdict = await sandbox.verdict(idle, tests, entry_point, prelude=prelude)
    if verdict.outcome == "fault":
        raise SandboxFault(f"the tests could not be checked: {verdict.error}")
    if verdict.passed:
        nodes = ast.walk(syntax_tree("tests", tests))
        line = min((node.lineno for node in nodes if isinstance(node, ast.Assert)), default=1)
        raise DataError(
            f"line {line} of the tests: the tests also pass a function that returns None; assert what it must return"
        )


async def _check_tests(sandbox: Sandbox, problem: Problem) -> list[Rejected]:
    """Say why the hidden tests of a code problem prove nothing or cannot run."""
    question, reference = problem.question, problem.reference
    try:
        await prove_tests(sandbox, reference.tests, question.entry_point or "", question.prelude)
    except (DataError, SandboxFault) as error:
        return [Rejected(problem.place, f"{question.id}: {error}")]
    return []


async def _check(judge: Judge, sandbox: Sandbox, problem: Problem, gold: str) -> list[Rejected]:
    """Check that judge and public tests accept ``gold``. Tests that cannot run are left to ``_check_tests``."""
    question = problem.question
    try:
        verdict = await judge.verdict(problem, gold)
    except DataError:
        return []
    reasons = [] if verdict.correct else [f"{verdict.reason}; the gold is {gold[-80:]!r}"]
    tests = problem.reference.tests
    # Code before the first hidden assert, which public asserts may need too.
    setup = "" if "def check(" in tests else tests.partition("assert ")[0]
    for test in question.public_tests:
        result = await run_assert(sandbox.run_code, gold, test, question.entry_point, question.prelude)
        if not result.passed and setup:
            source = f"{gold}\n\n{setup}"
            result = await run_assert(sandbox.run_code, source, test, question.entry_point, question.prelude)
        if not result.passed:
            reasons.append(f"public test {test}: {result.error}, got {result.got}")
    return [Rejected(question.id, reason) for reason in reasons]


def _parsed(dataset: Dataset | None, forms: Forms, record: Record, place: str) -> tuple[Problem, tuple[str, ...]]:
    """Parse the problem of a record, and replies that must be judged correct."""
    problem, dataset, record = (dataset.parse(record), dataset, record) if dataset else forms(record)
    problem = replace(problem, place=place)
    if dataset:
        return problem, dataset.golds(record)
    return problem, problem.reference.answers or (("unanswerable",) if problem.reference.unanswerable else ())
