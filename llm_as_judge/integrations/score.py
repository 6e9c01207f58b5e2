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
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache, wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

import msgspec

from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.data import DataConfig
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.data.forms import PLAIN, parse
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.rewards.functions import Background
from llm_as_judge.rl.rollout import RolloutParts, completed, conclude, run_attempt, to_repair
from llm_as_judge.types import Attempt, Completion, Problem, Rollout

P = ParamSpec("P")
T = TypeVar("T")
#: Column of a row with the whole problem, as JSON in the project's own format.
RECORD = "record"
Row = Mapping[str, Any]


def shared(make: Callable[P, T]) -> Callable[P, T]:
    """``make`` with one result per process and arguments; simultaneous first calls wait for one of them."""
    cached: Any = cache(make)
    lock = threading.Lock()

    @wraps(make)
    def get(*args: P.args, **kwargs: P.kwargs) -> T:
        with lock:
            result: T = cached(*args, **kwargs)
        return result

    return get


def problem_of(row: Row, data: DataConfig = PLAIN) -> Problem:
    """The problem of a row: its ``record``, or the row itself in the project's own format. Raises ``DataError``."""
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
        self, row: Row, text: str, *, finish_reason: Literal["stop", "length"] = "stop", seed: int | None = None,
        attempts: Sequence[Attempt] = (),
    ) -> Rollout:  # fmt: skip
        """Run, judge and reward ``text``, the policy's whole reply, on the problem of ``row``.

        ``finish_reason`` "length": the reply was cut off at its limit. ``seed`` is the executor's: replies of one group
        should have different ones. ``attempts`` are the earlier ones of the episode, from ``attempt``. Raises
        ``DataError`` for a row without a problem, ``ConfigError`` and ``ProviderError`` if the services cannot be
        opened.
        """
        problem, completion = problem_of(row, self.config.data), Completion(text, (), (), (), finish_reason)
        services = await asyncio.to_thread(self._services)
        work = services.roll_out(problem, completion, seed, tuple(attempts))
        return await asyncio.wrap_future(services.loop.submit(work))

    async def attempt(
        self, row: Row, text: str, *, finish_reason: Literal["stop", "length"] = "stop", seed: int | None = None
    ) -> Attempt | None:
        """Run ``text``; if it fails in a way that the policy may repair, the attempt with what the policy is told.

        Send ``told`` as the next user message, and give the attempt to ``score`` with the policy's next reply. None:
        the episode ends, ``score`` this reply. Raises as ``score``.
        """
        problem, completion = problem_of(row, self.config.data), Completion(text, (), (), (), finish_reason)
        services = await asyncio.to_thread(self._services)
        return await asyncio.wrap_future(services.loop.submit(services.attempt(problem, completion, seed)))

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


@shared
def shared_scorer(config: str, overrides: tuple[str, ...]) -> Scorer:
    """One scorer per process and settings, for engines that name them at each call."""
    return Scorer(config, overrides)


class _Services:
    """The open services of one process, in their own event loop."""

    def __init__(self, config: Config) -> None:
        self.pid, self.loop, self.stack = os.getpid(), Background("scorer"), AsyncExitStack()
        try:
            services = self.loop.submit(self.stack.enter_async_context(open_services(config))).result()
        except BaseException:
            self.loop.close()
            raise
        self._parts: RolloutParts = services.training
        self._limit = asyncio.Semaphore(self._parts.concurrency)

    async def attempt(self, problem: Problem, completion: Completion, seed: int | None) -> Attempt | None:
        async with self._limit:
            last = await run_attempt(problem, completion, self._parts, seed)
            return await to_repair(last, problem.question, self._parts)

    async def roll_out(
        self, problem: Problem, completion: Completion, seed: int | None, attempts: tuple[Attempt, ...]
    ) -> Rollout:
        async with self._limit:
            last = await run_attempt(problem, completion, self._parts, seed)
            rollout = await conclude(problem, completion, self._parts, last, attempts)
        return (await completed({(0, 0): rollout}, self._parts))[0, 0]
