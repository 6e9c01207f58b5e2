"""An event loop in a thread of its own: for engines that bring another loop, several of them, or none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def shared(make: Callable[P, T]) -> Callable[P, T]:
    """``make``, whose results this process keeps by its arguments; calls that come together make one."""
    kept: Any = cache(make)
    one_at_a_time = threading.Lock()

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> T:
        with one_at_a_time:
            result: T = kept(*args, **kwargs)
        return result

    return made


class Background:
    """Runs until the process ends, unless ``close`` is called."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name=name)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Starts ``work``; its future may be waited for in any thread, and cancelled."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
