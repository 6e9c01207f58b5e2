"""Calls of a user's own function: TRL's signature, sync or async, beside the event loop and with a time limit.

Arguments are lists, passed by name; the result is one value for each item, or None. A synchronous function runs in a
thread, one call at a time; an asynchronous one on an event loop of its own, several calls at once. An item for which
the function raises or takes too long is ``Failed``, which leaves its rollout unscored; a result of another length or
kind is an error of the function and ends the run.
"""

import asyncio
import inspect
import logging
import math
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache, partial
from numbers import Real
from typing import Any, TypeVar

from llm_as_judge.config.registry import own_object
from llm_as_judge.errors import ConfigError
from llm_as_judge.types import Problem

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: Calls before the first step that must all fail for a function to be refused.
_TRIES = 3
_LONGEST = 300  # characters of an exception
Columns = Mapping[str, Sequence[Any]]


def question_columns(problems: Sequence[Problem]) -> dict[str, list[Any]]:
    """Return the arguments that every function may ask for.

    ``ground_truth``: first reference answer, hidden tests, or None where there is neither.
    """
    questions = [problem.question for problem in problems]
    return {
        "prompts": [q.statement for q in questions],
        "ground_truth": [problem.reference.first for problem in problems],
        **{name: [getattr(q, name) for q in questions] for name in ("id", "domain", "dataset")},
    }


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a function has no value for an item."""

    reason: str
    timed_out: bool = False


class OwnFunction:
    """The function ``name`` (``package.module:function`` or ``file.py:function``) of the setting ``setting``.

    ``columns``: the arguments there are. Numbers are in ``limits``; True is 1 and False is 0. Raises ``ConfigError`` if
    there is no such function or it asks for another argument.
    """

    def __init__(
        self, setting: str, name: str, columns: Collection[str], timeout_s: float,
        limits: tuple[float, float] = (-math.inf, math.inf),
    ) -> None:  # fmt: skip
        self.name, self._at, self._timeout_s, self._limits = name, f"{setting}: {name!r}", timeout_s, limits
        if ":" not in name:
            raise ConfigError(f"{setting}: write package.module:function or file.py:function, got {name!r}")
        function = own_object(setting, name)
        if not callable(function):
            raise ConfigError(f"{self._at} is not a function")
        self._function: Callable[..., Any] = function
        parameters = inspect.signature(function).parameters.values()
        asked = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.default is p.empty]
        if lacking := [p.name for p in asked if p.name not in columns or p.kind is p.POSITIONAL_ONLY]:
            raise ConfigError(
                f"{self._at} asks for {', '.join(lacking)}; parameters are passed by name, and there are "
                f"{', '.join(columns)}"
            )
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._named = {p.name for p in parameters}
        self._places = asyncio.Semaphore(sys.maxsize if inspect.iscoroutinefunction(function) else 1)
        self._warned = set[str]()

    async def values(self, columns: Columns) -> list[float | Failed | None]:
        """Compute a value for each item. If the function raises, each is asked for alone, so that one spoils no other.

        Raises ``ConfigError`` for a result of another length, or with anything but numbers and None.
        """
        size = len(next(iter(columns.values())))
        if not size:
            return []
        found = await self._called(columns)
        if not isinstance(found, Failed):
            return [*found]
        if size == 1 or found.timed_out:
            return [found] * size
        alone = [{name: column[i : i + 1] for name, column in columns.items()} for i in range(size)]
        single = await asyncio.gather(*map(self._called, alone))
        return [one if isinstance(one, Failed) else one[0] for one in single]

    async def try_out(self, columns: Columns) -> None:
        """Raise ``ConfigError`` before a run if the function raises every time, or as ``values`` does."""
        for _ in range(_TRIES):
            if not isinstance(found := await self._called(columns), Failed) or found.timed_out:
                return
        assert isinstance(found, Failed)
        raise ConfigError(f"{found.reason}; it raised in {_TRIES} of {_TRIES} calls before the run: mend it")

    async def _called(self, columns: Columns) -> Sequence[float | None] | Failed:
        passed = {name: list(c) for name, c in columns.items() if self._takes_all or name in self._named}
        async with self._places:
            call = asyncio.wrap_future(_started(partial(self._function, **passed), self._timeout_s))
            try:
                await asyncio.wait([call], timeout=self._timeout_s)
            finally:
                call.cancel()  # no effect on a result that is there
        if call.cancelled():
            return self._failed(f"{self._at} took longer than {self._timeout_s:g} s, its time limit", timed_out=True)
        result, error = call.result()
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)
            said = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
            return self._failed(f"{self._at} raised {said} ({frames[-1].filename}, line {frames[-1].lineno})")
        return self._checked(result, len(next(iter(columns.values()))))

    def _failed(self, reason: str, timed_out: bool = False) -> Failed:
        if reason not in self._warned:
            self._warned.add(reason)
            logger.warning("%s; what it was asked about stays unscored", reason)
        return Failed(reason, timed_out)

    def _checked(self, result: Any, size: int) -> list[float | None]:
        if hasattr(result, "tolist"):  # an array or a tensor
            result = result.tolist()
        if not isinstance(result, list | tuple) or len(result) != size:
            got = len(result) if isinstance(result, list | tuple) else type(result).__name__
            raise ConfigError(f"{self._at} must return a list of {size} values, one for each item, got {got}")
        low, high = self._limits
        kind = "finite numbers" if math.isinf(high) else f"True, False or numbers in [{low:g}, {high:g}]"
        values = [value.item() if hasattr(value, "item") else value for value in result]
        for value in values:
            fits = isinstance(value, Real) and math.isfinite(value) and low <= float(value) <= high
            if value is not None and not fits:
                raise ConfigError(f"{self._at} must return {kind}, or None for no value; got {value!r}")
        return [None if value is None else float(value) for value in values]


def _started(work: Callable[[], Any], timeout_s: float) -> Future[tuple[Any, BaseException | None]]:
    """Start ``work``; gives its result, awaited if it can be, or what it raised.

    The thread is a daemon: one that never ends does not keep the process from ending.
    """
    outcome: Future[tuple[Any, BaseException | None]] = Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
            if inspect.isawaitable(result):  # ended soon after nobody waits for it
                result = _own_loop().submit(asyncio.wait_for(result, timeout_s + 1)).result()
        except BaseException as error:  # the user's own code may raise anything
            outcome.set_result((None, error))
        else:
            outcome.set_result((result, None))

    threading.Thread(target=run, daemon=True, name="own function").start()
    return outcome


class Background:
    """An event loop in its own thread, until ``close`` or the end of the process, for callers with another or none."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name=name)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start ``work``; its future can be awaited or cancelled from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


#: The event loop of all asynchronous functions: one that blocks it delays no rollout.
_own_loop = cache(partial(Background, "own async functions"))
