"""An event loop in its own thread, for engines with a different event loop, several or none."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


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


class Background:
    """Runs until ``close`` or the end of the process."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name=name)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start ``work``; its future can be awaited or cancelled from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
