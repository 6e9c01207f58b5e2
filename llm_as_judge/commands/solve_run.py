"""``llm-as-judge solve`` and ``workflow run``: a problem, by the policy's workflow or by a given one.

``Solver`` is what answers any number of problems with one policy and one set of services; ``serve`` and the doors for
programs stand on it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import DataError
from llm_as_judge.evaluation.evaluate import PolicyAuthor
from llm_as_judge.rl.rollout import Runner, extract_code
from llm_as_judge.types import Completion, Execution, Question
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.source import WorkflowSource, initialise_unbound

_FALLBACK = """class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem: str{entry}):
        result = await self.custom(input=problem, instruction="")
        return result['response'], 0.0
"""
#: Questions that the policy writes workflows for at once.
_BATCH = 16


@dataclass(frozen=True, slots=True)
class Draw:
    """How the policy samples a workflow: None is as configured. The executor is asked with ``seed``, too."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None  # None: a fresh one


#: The same question asked alone gets the same workflow.
REPEATABLE = Draw(seed=0)


@dataclass(frozen=True, slots=True)
class Solution:
    """The workflow that the policy wrote, and its run."""

    checkpoint: Path | None
    workflow: str
    execution: Execution
    repaired: bool
    fallback: bool  # the workflow failed, and a plain call of the executor answered
    prompt_tokens: int = 0  # of the policy
    completion_tokens: int = 0

    @property
    def answer(self) -> str | None:
        """None where the workflow gave none."""
        return self.execution.answer

    def as_json(self) -> dict[str, Any]:
        execution = self.execution
        return {
            "checkpoint": str(self.checkpoint) if self.checkpoint else None,
            "answer": execution.answer,
            "outcome": execution.outcome,
            "error": execution.error,
            "repaired": self.repaired,
            "fallback": self.fallback,
            "executor_tokens": execution.tokens,
            "cost": execution.cost,
            "workflow": self.workflow,
            "trace": [dataclasses.asdict(call) for call in execution.calls],
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    question: Question
    draw: Draw
    written: asyncio.Future[Completion]


class Solver:
    """Solves problems, many at once; those that wait for the policy meanwhile are written for together."""

    def __init__(self, runner: Runner, author: PolicyAuthor, checkpoint: Path | None) -> None:
        self._runner, self._author, self._checkpoint = runner, author, checkpoint
        self._waiting: list[_Asked] = []
        self._writing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "policy")  # the event loop goes on meanwhile

    async def solve(
        self,
        question: Question,
        draw: Draw = REPEATABLE,
        *,
        repair: bool = False,
        fallback: bool = False,
        on_workflow: Callable[[str], None] = lambda source: None,
    ) -> Solution:
        """The policy writes a workflow for the question, of which ``on_workflow`` is told, and which is run and traced.

        Raises ``DataError`` for a question that does not fit the policy's context, ``InfrastructureError`` where the
        executor or the sandbox fail. A workflow that fails is no error: ``execution.outcome`` tells.
        """
        completion = await self._write(question, draw)
        workflow, repaired, fell_back = extract_code(completion.text, completion.prefill), False, False
        if repair:
            mended = initialise_unbound(workflow, lint(workflow, entry_point=question.entry_point))
            workflow, repaired = mended, mended != workflow
        on_workflow(workflow)
        execution = await self._runner.run(workflow, question, draw.seed)
        if fallback and execution.outcome != "finished":
            fell_back = True
            entry = ", entry_point: str" if question.entry_point else ""
            execution = await self._runner.run(_FALLBACK.format(entry=entry), question, draw.seed)
        tokens = len(completion.prompt_ids), len(completion.token_ids)
        return Solution(self._checkpoint, workflow, execution, repaired, fell_back, *tokens)

    async def close(self) -> None:
        """Waits for the batch under way, which cannot be stopped."""
        for asked in self._waiting:
            asked.written.cancel()
        self._waiting.clear()
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        self._thread.shutdown()

    async def _write(self, question: Question, draw: Draw) -> Completion:
        loop = asyncio.get_running_loop()
        asked = _Asked(question, draw, loop.create_future())
        self._waiting.append(asked)
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._work())
        return await asked.written

    async def _work(self) -> None:
        """A batch after the other: the oldest question, and those that are to be sampled as it is."""
        while waiting := [asked for asked in self._waiting if not asked.written.done()]:
            batch = [asked for asked in waiting if asked.draw == waiting[0].draw][:_BATCH]
            self._waiting = [asked for asked in waiting if asked not in batch]
            loop = asyncio.get_running_loop()
            try:
                written = await loop.run_in_executor(
                    self._thread, self._sample, [a.question for a in batch], batch[0].draw
                )
            except Exception as error:  # goes to those who wait for it
                written = [error] * len(batch)
            for asked, result in zip(batch, written, strict=True):
                if asked.written.done():  # nobody waits any more
                    continue
                if isinstance(result, Exception):
                    asked.written.set_exception(result)
                else:
                    asked.written.set_result(result)

    def _sample(self, questions: list[Question], draw: Draw) -> list[Completion | Exception]:
        """A workflow for each, or why there is none."""
        author = self._author
        changes = {"eval_temperature": draw.temperature, "top_p": draw.top_p}
        given = {name: value for name, value in changes.items() if value is not None}
        if given:
            generation = author.config.generation.model_copy(update=given)
            author = dataclasses.replace(author, config=author.config.model_copy(update={"generation": generation}))
        found: list[Completion | Exception] = [_too_long(author, question) or _NOT_YET for question in questions]
        fitting = [i for i, result in enumerate(found) if result is _NOT_YET]
        if fitting:
            start = secrets.randbits(31) if draw.seed is None else draw.seed % 2**31
            groups = author.write([questions[i] for i in fitting], start=start)
            for i, (completion,) in zip(fitting, groups, strict=True):
                found[i] = completion
        return found


_NOT_YET = RuntimeError("not written yet")


def _too_long(author: PolicyAuthor, question: Question) -> DataError | None:
    reads = getattr(author.policy.base.config.get_text_config(), "max_position_embeddings", None)
    writes = author.config.training.response_max_length
    tokens = len(author.policy.encode(author.prompt(question)))
    if reads is None or tokens + writes <= reads:
        return None
    return DataError(
        f"the problem makes a prompt of {tokens} tokens; {author.config.base_model.key} reads {reads}, of which "
        f"training.response_max_length keeps {writes} for the workflow: give a shorter problem"
    )


@asynccontextmanager
async def open_solver(config: Config, checkpoint: Path | None = None) -> AsyncIterator[Solver]:
    """The policy with the adapter of ``checkpoint``, and all that its workflows need; no judge, who has no work."""
    async with open_services(config, judging=False) as services:
        solver = Solver(services.runner, load_author(config, checkpoint), checkpoint)
        try:
            yield solver
        finally:
            await solver.close()


async def solve(
    config: Config, question: Question, *, checkpoint: Path | None, repair: bool = False, fallback: bool = False
) -> Solution:
    """One question, see ``Solver.solve``."""
    async with open_solver(config, checkpoint) as solver:
        return await solver.solve(question, repair=repair, fallback=fallback)


async def run_workflow(config: Config, workflow: WorkflowSource, question: Question) -> Execution:
    """A given workflow on one problem, without any policy."""
    async with open_services(config, judging=False) as services:
        return await services.runner.beside(workflow.prompt).run(workflow.text, question)
