"""The environment of a run as one function of a problem and a workflow's text, for engines that train by themselves.

    scorer = Scorer("config/training.yaml")
    scored = await scorer.score(row, text)

The workflow runs in the sandbox against the executor, is judged, and gets the five terms: the same road that the
package's own training takes. ``score`` may be awaited from any event loop of any thread. What engines do with a rollout
that nobody could score differs; here its ``reward`` is None, and it is never 0.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.data.benchmarks.custom import parse
from llm_as_judge.errors import DataError
from llm_as_judge.integrations.background import Background, shared
from llm_as_judge.rl.rollout import RolloutParts, roll_out
from llm_as_judge.types import Completion, Group, Problem, Rollout

#: The column of a row that holds the whole problem, as JSON in the project's own format.
RECORD = "record"
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scored:
    """``reward`` and ``correct`` are None where nobody could tell, for our own reasons: ``reason`` says which."""

    reward: float | None
    terms: Mapping[str, float]  # each on its own scale, before its weight
    correct: bool | None
    outcome: str  # of the workflow's run
    reason: str
    answer: str | None
    executor_tokens: int
    cost: float

    @classmethod
    def of(cls, rollout: Rollout) -> Scored:
        execution, verdict = rollout.execution, rollout.verdict
        return cls(
            rollout.reward.total,
            dict(rollout.reward.terms),
            verdict.correct,
            execution.outcome,
            verdict.reason or execution.error,
            execution.answer,
            execution.tokens,
            execution.cost,
        )


def problem_of(row: Row) -> Problem:
    """The problem of a row: its ``record``, or the row itself in the project's own format (``datasets.custom``).

    Raises ``DataError`` where there is none.
    """
    record = row.get(RECORD)
    if record is None:
        return parse(row)
    if not isinstance(record, str):
        raise DataError(f"column {RECORD!r} must be a problem as JSON text, got {type(record).__name__}")
    return _parsed(record)


@lru_cache(maxsize=4096)
def _parsed(record: str) -> Problem:
    try:
        loaded = json.loads(record)
    except ValueError as error:
        raise DataError(f"column {RECORD!r} is no JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise DataError(f"column {RECORD!r} must be an object, got {type(loaded).__name__}")
    return parse(loaded)


class Scorer:
    """Models, sandbox and judge open at the first score, once a process, and close at its end or by ``close``.

    Args:
        config: a YAML file of settings, or settings.
        overrides: ``name=value`` settings.
    """

    def __init__(self, config: str | Path | Config = "config/training.yaml", overrides: Sequence[str] = ()) -> None:
        self.config = config if isinstance(config, Config) else load_config(config, overrides)
        self._lock = threading.Lock()
        self._open: _Open | None = None

    async def score(
        self,
        row: Row,
        text: str,
        *,
        finish_reason: Literal["stop", "length"] = "stop",
        seed: int | None = None,
    ) -> Scored:
        """What ``text``, the policy's whole reply, is worth on the problem of ``row``.

        ``finish_reason`` tells a reply that was cut off at its limit. ``seed`` is of the executor's sampling: replies
        of one group should differ in it. Raises ``DataError`` for a row that is no problem, ``ConfigError`` and
        ``ProviderError`` where the services cannot be opened.
        """
        completion = Completion(text, (), (), (), finish_reason)
        return Scored.of(await self.roll_out(problem_of(row), completion, seed))

    async def roll_out(self, problem: Problem, completion: Completion, seed: int | None = None) -> Rollout:
        """The same with all that was seen on the way."""
        opened = await asyncio.to_thread(self._opened)
        return await asyncio.wrap_future(opened.submit(problem, completion, seed))

    def close(self) -> None:
        with self._lock:
            opened, self._open = self._open, None
        if opened is not None and opened.pid == os.getpid():
            opened.close()

    def _opened(self) -> _Open:
        with self._lock:
            if self._open is None or self._open.pid != os.getpid():  # threads do not follow into a forked process
                self._open = _Open(self.config)
            return self._open

    def __getstate__(self) -> Mapping[str, Any]:
        return {"config": self.config}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["config"])  # type: ignore[misc]


@shared
def shared_scorer(config: str, overrides: tuple[str, ...]) -> Scorer:
    """The one of this process for a file of settings and its changes, for engines that name both at each call."""
    return Scorer(config, overrides)


class _Open:
    """The services of one process, in a loop of their own."""

    def __init__(self, config: Config) -> None:
        self.pid = os.getpid()
        self._stack = AsyncExitStack()
        self._background = Background("scorer")
        try:
            self._parts: RolloutParts = self._background.submit(self._enter(config)).result()
        except BaseException:
            self._background.close()
            raise

    async def _enter(self, config: Config) -> RolloutParts:
        services = await self._stack.enter_async_context(open_services(config))
        self._limit = asyncio.Semaphore(services.training.concurrency)
        return services.training

    def submit(self, problem: Problem, completion: Completion, seed: int | None) -> concurrent.futures.Future[Rollout]:
        return self._background.submit(self._roll_out(problem, completion, seed))

    async def _roll_out(self, problem: Problem, completion: Completion, seed: int | None) -> Rollout:
        parts = self._parts
        async with self._limit:
            rollout = await roll_out(problem, completion, parts, seed)
        if parts.extra is None:
            return rollout
        (group,) = await parts.extra.add([Group(problem, (rollout,))])
        return group.rollouts[0]

    def close(self) -> None:
        self._background.submit(self._stack.aclose()).result()
        self._background.close()
