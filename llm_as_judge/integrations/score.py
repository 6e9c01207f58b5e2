"""The environment as one function of a problem and a workflow's text, for other training engines.

    scorer = Scorer("config/training.yaml")
    rollout = await scorer.score(row, text)
    print(rollout.reward.total, rollout.verdict.correct)

The workflow runs in the sandbox with the executor and is judged and rewarded as in the package's own training.
``score`` may be awaited from any event loop of any thread. The reward of an unscored rollout is None, never 0.
"""

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal

import msgspec

from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.data import DataConfig
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.data.forms import NO_MAPPING, parse
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.rewards.functions import Background
from llm_as_judge.rl.rollout import RolloutParts, completed, conclude, run_attempt, to_repair
from llm_as_judge.types import Attempt, Completion, Problem, Rollout

#: Column of a row with the whole problem, as JSON in the project's own format.
RECORD = "record"
DataRow = Mapping[str, Any]


def problem_of(row: DataRow, data: DataConfig = NO_MAPPING) -> Problem:
    """Read a row's problem: its ``record``, or the row itself in the project's own format. Raises ``DataError``."""
    if RECORD not in row:
        return parse(row, data)
    try:
        return parse(msgspec.json.decode(row[RECORD], type=dict[str, Any]), data)
    except (msgspec.DecodeError, TypeError, RecursionError) as error:
        raise DataError(f"column {RECORD!r} must be a problem as JSON text: {error}") from error


class Scorer:
    """Scores workflows; models, sandbox and judge open at the first score, once per process, until ``close``.

    Args:
        config: a YAML configuration, or a loaded one.
        overrides: ``name=value`` settings.
    """

    def __init__(self, config: str | Path | Config = "config/training.yaml", overrides: Sequence[str] = ()) -> None:
        self.config = config if isinstance(config, Config) else load_config(config, overrides)
        if self.config.judge.relative:
            raise ConfigError("judge.relative ranks whole groups, and a Scorer sees one workflow: set judge.rubric")
        self._lock = threading.Lock()
        self._open: _Services | None = None

    async def score(
        self, row: DataRow, text: str, *, finish_reason: Literal["stop", "length"] = "stop", seed: int | None = None,
        attempts: Sequence[Attempt] = (),
    ) -> Rollout:  # fmt: skip
        """Run, judge and reward ``text``, the policy's whole reply, on the problem of ``row``.

        ``finish_reason`` "length": the reply was cut off at its limit. ``seed`` is the executor's. ``attempts`` are the
        earlier ones of the episode, from ``turn``. Raises ``DataError`` for a row without a problem, ``ConfigError``
        and ``ProviderError`` if the services cannot be opened.
        """
        ended = await self.turn(row, text, finish_reason, seed, attempts, last=True)
        assert isinstance(ended, Rollout)
        return ended

    async def turn(
        self, row: DataRow, text: str, finish_reason: Literal["stop", "length"], seed: int | None,
        attempts: Sequence[Attempt] = (), last: bool = False,
    ) -> Rollout | Attempt:  # fmt: skip
        """Do as ``score``; if the policy may repair the workflow and it is not the ``last``, return the failed attempt.

        Send ``told`` as the next user message, and give the attempt with the policy's next reply.
        """
        problem, completion = problem_of(row, self.config.data), Completion(text, (), (), (), finish_reason)
        services = await asyncio.to_thread(self._services)
        parts, repair = services.parts, not last and len(attempts) < self.config.workflow.repairs

        async def roll_out() -> Rollout | Attempt:
            async with services.limit:
                attempt = await run_attempt(problem, completion, parts, seed)
                if repair and (failed := await to_repair(attempt, problem, parts)):
                    return failed
                rollout = await conclude(problem, completion, parts, attempt, tuple(attempts))
            return (await completed({(0, 0): rollout}, parts))[0, 0]

        return await asyncio.wrap_future(services.loop.submit(roll_out()))

    def close(self) -> None:
        with self._lock:
            services, self._open = self._open, None
        if services is not None and services.pid == os.getpid():
            services.loop.submit(services.stack.aclose()).result()
            services.loop.close()

    def _services(self) -> "_Services":
        with self._lock:
            if self._open is None or self._open.pid != os.getpid():  # a fork does not copy threads
                self._open = _Services(self.config)
            return self._open

    def __reduce__(self) -> "tuple[type[Scorer], tuple[Config]]":
        return Scorer, (self.config,)


class _Services:
    """The open services of one process, in their own event loop."""

    def __init__(self, config: Config) -> None:
        self.pid, self.loop, self.stack = os.getpid(), Background("scorer"), AsyncExitStack()
        try:
            services = self.loop.submit(self.stack.enter_async_context(open_services(config))).result()
        except BaseException:
            self.loop.close()
            raise
        self.parts: RolloutParts = services.training
        self.limit = asyncio.Semaphore(self.parts.concurrency)
