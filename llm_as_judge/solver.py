"""Answers from a trained policy, for programs.

async with Solver("config/training.yaml") as solver:
    solution = await solver.solve("Tom has 3 apples. He buys 4 more. How many apples does Tom have now?")
    print(solution.answer, solution.workflow)
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_as_judge.assembly.policy import load_author, newest_adapter
from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import DataError
from llm_as_judge.files import picked
from llm_as_judge.policy.device import on_device
from llm_as_judge.rl.rollout import extract_code
from llm_as_judge.types import Attempt, Completion, Domain, Execution, Question
from llm_as_judge.workflow.shapes import SHAPES, workflow

#: Maximum number of questions per call of the policy.
_BATCH = 16


@dataclass(frozen=True, slots=True)
class Draw:
    """Sampling parameters of the policy; None: as configured. The executor gets the same ``seed``."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None  # None: a new one each time


#: The same question alone gets the same workflow.
REPEATABLE = Draw(seed=0)


@dataclass(frozen=True, slots=True)
class Solution:
    """The last workflow that the policy wrote, after repaired ``attempts``, and its run or that of the ``fallback``."""

    checkpoint: Path | None
    workflow: str
    execution: Execution
    fallback: bool  # the workflow failed, and the executor answered directly
    prompt_tokens: int = 0  # of the policy, over all turns
    completion_tokens: int = 0
    attempts: tuple[Attempt, ...] = ()

    @property
    def answer(self) -> str | None:
        """None if neither the workflow nor the fallback finished."""
        return self.execution.answer

    @property
    def runs(self) -> tuple[Execution, ...]:
        """The runs of all attempts."""
        return (*(attempt.execution for attempt in self.attempts), self.execution)

    def tokens(self) -> tuple[int, int]:
        """Count prompt and completion tokens of policy and executor together."""
        exchanges = [exchange for run in self.runs for call in run.calls for exchange in call.exchanges]
        read = self.prompt_tokens + sum(exchange.prompt_tokens for exchange in exchanges)
        return read, self.completion_tokens + sum(exchange.completion_tokens for exchange in exchanges)

    def as_json(self) -> dict[str, Any]:
        execution = self.execution
        return {
            "checkpoint": str(self.checkpoint) if self.checkpoint else None,
            **picked(execution, "answer outcome error"),
            "fallback": self.fallback,
            "executor_tokens": sum(run.tokens for run in self.runs),
            "cost": sum(run.cost for run in self.runs),
            "workflow": self.workflow,
            "trace": execution.calls,
            "attempts": self.attempts,
        }


@dataclass(slots=True, eq=False)
class _Request:
    question: Question
    draw: Draw
    failed: Completion | None = None  # to be repaired, after what it is told
    told: str = ""
    written: Completion | None = None


class Solver:
    """Policy, executor and sandbox, open within ``async with``. Concurrent calls of ``solve`` are sampled in one batch.

    No judge is opened.

    Args:
        config_path: a YAML configuration; None is the default, the embedded models.
        overrides: ``name=value`` settings.
        checkpoint: folder of an adapter; None is the newest of the configured run, or no adapter without one.
        config: a configuration instead of ``config_path`` and ``overrides``.
        untrained: no adapter.
    """

    def __init__(
        self, config_path: str | Path | None = None, overrides: Sequence[str] = (), *, config: Config | None = None,
        checkpoint: str | Path | None = None, untrained: bool = False,
    ) -> None:  # fmt: skip
        self.config = config or load_config(config_path or "config/embedded.yaml", overrides)
        self.checkpoint = Path(checkpoint) if checkpoint else None if untrained else newest_adapter(self.config)
        self._waiting: list[_Request] = []
        self._writing = asyncio.Lock()

    async def __aenter__(self) -> "Solver":
        async with AsyncExitStack() as stack:  # closed here if the policy cannot be loaded
            services = await stack.enter_async_context(open_services(self.config, judging=False))
            self._runner = services.runner
            self._author = await on_device(load_author, self.config, self.checkpoint)
            await services.hosted.share(self._author)
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._open.aclose()

    async def solve(
        self, problem: str, domain: Domain = "math", *, context: str = "", entry_point: str | None = None,
        public_tests: Sequence[str] = (), draw: Draw = REPEATABLE, fallback: bool = False,
    ) -> Solution:  # fmt: skip
        """Write a workflow for ``problem`` and run it; ``answer`` is None if the workflow fails.

        ``entry_point`` is the function that a code problem asks for, ``public_tests`` are assert statements that call
        it. With ``fallback`` the executor answers directly if the workflow fails. Raises ``ConfigError``,
        ``DataError`` for a problem that is empty or too long, ``InfrastructureError`` if the executor fails.
        """
        more: dict[str, Any] = {"context": context, "public_tests": tuple(public_tests)}
        question = self.config.data.question("program", problem, domain, entry_point, **more)
        return await self.answer(question, draw, fallback=fallback)

    async def answer(
        self, question: Question, draw: Draw = REPEATABLE, *, fallback: bool = False,
        on_workflow: Callable[[str], Awaitable[None]] | None = None,
    ) -> Solution:  # fmt: skip
        """Answer as ``solve``; ``on_workflow`` is called with the workflow before it runs."""
        attempts, repairs = list[Attempt](), self.config.workflow.repairs
        completion = await self._write(_Request(question, draw))
        if completion.verbatim:
            raise DataError(f"{completion.text.removeprefix('# ')}; give a shorter problem or raise it")
        read = len(completion.prompt_ids)
        while True:
            source = extract_code(completion.text, completion.prefill)
            if on_workflow:
                await on_workflow(source)
            execution = await self._runner.run(source, question, draw.seed)
            told = await self._runner.feedback(execution, question) if len(attempts) < repairs else ""
            if not told:
                break
            attempts.append(Attempt(source, execution, told))
            before = completion
            completion = await self._write(_Request(question, draw, completion, told))
            read += len(before.prompt_ids) + completion.mask.index(True, len(before.token_ids))
        if fell_back := fallback and execution.outcome != "finished":
            direct = workflow(SHAPES["direct"], "code" if question.entry_point else "qa")
            execution = await self._runner.run(direct, question, draw.seed)
        return Solution(self.checkpoint, source, execution, fell_back, read, completion.written, tuple(attempts))

    async def _write(self, own: _Request) -> Completion:
        """Wait until the policy is free, then write for all waiting requests with the same sampling parameters."""
        self._waiting.append(own)
        try:
            async with self._writing:
                if own.written is None:
                    kind = own.draw, own.failed is None
                    alike = [r for r in self._waiting if r.written is None and (r.draw, r.failed is None) == kind]
                    await on_device(self._write_for, alike[:_BATCH])
        finally:
            self._waiting.remove(own)
        assert own.written is not None
        return own.written

    def _write_for(self, requests: Sequence[_Request]) -> None:
        draw = requests[0].draw
        changes = {"eval_temperature": draw.temperature, "top_p": draw.top_p}
        author = self._author.sampling(**{name: value for name, value in changes.items() if value is not None})
        start = secrets.randbits(31) if draw.seed is None else draw.seed % 2**31
        if failed := [request.failed for request in requests if request.failed]:
            written = author.again(failed, [request.told for request in requests], start)
        else:
            written = [one for (one,) in author.write([request.question for request in requests], start=start)]
        for request, completion in zip(requests, written, strict=True):
            request.written = completion
