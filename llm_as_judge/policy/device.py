"""The thread that computes with the policy: sampling, scoring, embedding, updates and saving, one after the other.

The event loop stays free for endpoints and workflows. Work that has begun is always finished, because stopping it could
leave the weights half updated.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Device:
    """A single worker thread; ``busy_s``: seconds of work so far."""

    def __init__(self) -> None:
        self.busy_s = 0.0
        self._thread = ThreadPoolExecutor(1, "device")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Result of ``work``, which runs after all earlier work. If cancelled, waits for the work to end first."""

        def timed() -> T:
            start = time.perf_counter()
            try:
                return work(*args, **kwargs)
            finally:
                self.busy_s += time.perf_counter() - start

        future = asyncio.get_running_loop().run_in_executor(self._thread, timed)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not future.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
            with contextlib.suppress(Exception):
                future.result()  # the cancellation takes precedence over the work's own error
            raise
