"""Answers from a trained policy, for programs.

async with Solver("config/training.yaml") as solver:
    solution = await solver.solve("Tom has 3 apples. He buys 4 more. How many apples does Tom have now?")
    print(solution.answer, solution.workflow)
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from llm_as_judge.assembly.policy import load_author, newest_checkpoint
from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.evaluation.evaluate import PolicyAuthor
from llm_as_judge.rl.rollout import Runner, extract_code
from llm_as_judge.types import DOMAINS, Completion, Domain, Execution, Question
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.source import initialise_unbound

_FALLBACK = """class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem: str{entry}):
        result = await self.custom(input=problem, instruction="")
        return result['response'], 0.0
"""
#: Maximum number of questions per call of the policy.
_BATCH = 16


@dataclass(frozen=True, slots=True)
class Draw:
    """How the policy samples a workflow; None: as configured. The executor gets the same ``seed``."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None  # None: a new one each time


#: The same question alone gets the same workflow.
REPEATABLE = Draw(seed=0)


@dataclass(frozen=True, slots=True)
class Solution:
    """The workflow that the policy wrote, and its run."""

    checkpoint: Path | None
    workflow: str
    execution: Execution
    repaired: bool
    fallback: bool  # the workflow failed, and the executor answered directly
    prompt_tokens: int = 0  # of the policy
    completion_tokens: int = 0

    @property
    def answer(self) -> str | None:
        """None if the workflow failed."""
        return self.execution.answer

    def tokens(self) -> tuple[int, int]:
        """Prompt and completion tokens of policy and executor together."""
        exchanges = [exchange for call in self.execution.calls for exchange in call.exchanges]
        return (
            self.prompt_tokens + sum(exchange.prompt_tokens for exchange in exchanges),
            self.completion_tokens + sum(exchange.completion_tokens for exchange in exchanges),
        )

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
class _Request:
    question: Question
    draw: Draw
    written: asyncio.Future[Completion]


class Solver:
    """Policy, executor and sandbox, open within ``async with``; ``solve`` may be awaited many times at once.

    Questions that wait at the same time are written for in one batch. No judge is opened.

    Args:
        config_path: a YAML configuration; None is the default, the embedded models.
        overrides: ``name=value`` settings.
        checkpoint: folder of an adapter; None is the newest of the configured run, or no adapter without one.
        config: a configuration instead of ``config_path`` and ``overrides``.
        untrained: no adapter.
    """

    def __init__(
        self,
        config_path: str | Path | None = None,
        overrides: Sequence[str] = (),
        *,
        checkpoint: str | Path | None = None,
        config: Config | None = None,
        untrained: bool = False,
    ) -> None:
        self.config = config or load_config(config_path or "config/embedded.yaml", overrides)
        self.checkpoint = Path(checkpoint) if checkpoint else None if untrained else newest_checkpoint(self.config)
        self._open = AsyncExitStack()
        self._waiting: list[_Request] = []
        self._writing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Solver:
        services = await self._open.enter_async_context(open_services(self.config, judging=False))
        self._runner: Runner = services.runner
        self._author = load_author(self.config, self.checkpoint)
        self._thread = ThreadPoolExecutor(1, "policy")  # keeps the event loop free
        self._open.push_async_callback(self._finish)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def solve(
        self,
        problem: str,
        domain: Domain = "math",
        *,
        context: str = "",
        entry_point: str | None = None,
        public_tests: Sequence[str] = (),
        draw: Draw = REPEATABLE,
        repair: bool = False,
        fallback: bool = False,
    ) -> Solution:
        """Write a workflow for ``problem`` and run it; ``answer`` is None if the workflow fails.

        ``entry_point`` is the function that a code problem asks for, ``public_tests`` are assert statements that call
        it. With ``fallback`` the executor answers directly if the workflow fails. Raises ``ConfigError``,
        ``DataError`` for a problem that is empty or too long, ``InfrastructureError`` if the executor fails.
        """
        if domain not in DOMAINS:
            raise ConfigError(f"domain {domain!r}: unknown; use one of {', '.join(DOMAINS)}")
        if not problem.strip():
            raise DataError("the problem is empty; give its text")
        question = Question("program", problem, domain, context, entry_point, tuple(public_tests))
        return await self.answer(question, draw, repair=repair, fallback=fallback)

    async def answer(
        self,
        question: Question,
        draw: Draw = REPEATABLE,
        *,
        repair: bool = False,
        fallback: bool = False,
        on_workflow: Callable[[str], None] = lambda source: None,
    ) -> Solution:
        """As ``solve``; ``on_workflow`` is called with the workflow before it runs."""
        completion = await self._write(question, draw)
        workflow, repaired = extract_code(completion.text, completion.prefill), False
        if repair:
            changed = initialise_unbound(workflow, lint(workflow, entry_point=question.entry_point))
            workflow, repaired = changed, changed != workflow
        on_workflow(workflow)
        execution = await self._runner.run(workflow, question, draw.seed)
        failed = execution.outcome != "finished"
        if fallback and failed:
            entry = ", entry_point: str" if question.entry_point else ""
            execution = await self._runner.run(_FALLBACK.format(entry=entry), question, draw.seed)
        tokens = len(completion.prompt_ids), len(completion.token_ids)
        return Solution(self.checkpoint, workflow, execution, repaired, fallback and failed, *tokens)

    async def _finish(self) -> None:
        """Wait for the batch in progress, which cannot be stopped."""
        for request in self._waiting:
            request.written.cancel()
        self._waiting.clear()
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        self._thread.shutdown()

    async def _write(self, question: Question, draw: Draw) -> Completion:
        loop = asyncio.get_running_loop()
        request = _Request(question, draw, loop.create_future())
        self._waiting.append(request)
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write_batches())
        return await request.written

    async def _write_batches(self) -> None:
        """One batch after the other: the oldest request and those that are sampled the same way."""
        loop = asyncio.get_running_loop()
        while waiting := [request for request in self._waiting if not request.written.done()]:
            draw = waiting[0].draw
            batch = [request for request in waiting if request.draw == draw][:_BATCH]
            self._waiting = [request for request in waiting if request not in batch]
            results: Sequence[Completion | Exception]
            try:
                questions = [request.question for request in batch]
                results = await loop.run_in_executor(self._thread, self._sample, questions, draw)
            except Exception as error:  # each waiting caller gets it
                results = [error] * len(batch)
            for request, result in zip(batch, results, strict=True):
                if request.written.done():  # cancelled
                    continue
                if isinstance(result, Exception):
                    request.written.set_exception(result)
                else:
                    request.written.set_result(result)

    def _sample(self, questions: list[Question], draw: Draw) -> list[Completion | DataError]:
        """A workflow for each question, or why it does not fit."""
        author = self._author
        changes = {"eval_temperature": draw.temperature, "top_p": draw.top_p}
        if given := {name: value for name, value in changes.items() if value is not None}:
            generation = author.config.generation.model_copy(update=given)
            author = dataclasses.replace(author, config=author.config.model_copy(update={"generation": generation}))
        errors = [_too_long(author, question) for question in questions]
        fitting = [question for question, error in zip(questions, errors, strict=True) if error is None]
        start = secrets.randbits(31) if draw.seed is None else draw.seed % 2**31
        written = iter(author.write(fitting, start=start, any_length=True) if fitting else ())
        return [error or next(written)[0] for error in errors]


def _too_long(author: PolicyAuthor, question: Question) -> DataError | None:
    context = getattr(author.policy.base.config.get_text_config(), "max_position_embeddings", None)
    reserved = author.config.training.response_max_length
    tokens = len(author.policy.encode(author.prompt(question)))
    if context is None or tokens + reserved <= context:
        return None
    return DataError(
        f"the problem's prompt has {tokens} tokens; {author.config.base_model.key} reads {context}, of which "
        f"training.response_max_length reserves {reserved} for the workflow; give a shorter problem"
    )
