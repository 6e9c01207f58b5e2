"""The one thread that computes with the policy: it generates, scores, embeds, updates and saves, a thing at a time.

The event loop only waits for it, so that endpoints and workflows are served meanwhile. Work that has begun is
finished: it may stand between two states of the weights.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Device:
    """``busy_s`` are the seconds worked so far."""

    def __init__(self) -> None:
        self.busy_s = 0.0
        self._thread = ThreadPoolExecutor(1, "device")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``work`` returns or raises, after all work asked for before. Cancelled, it waits for the work's end."""

        def timed() -> T:
            begun = time.perf_counter()
            try:
                return work(*args, **kwargs)
            finally:
                self.busy_s += time.perf_counter() - begun

        future = asyncio.get_running_loop().run_in_executor(self._thread, timed)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not future.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
            with contextlib.suppress(Exception):
                future.result()  # its error gives way to the cancellation
            raise
