"""Places for requests at one server: at most so many at once, first come first served, and what they were used for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """Sums since the start; the difference of two, divided by the seconds between, is the mean number of places."""

    requests: int = 0  # that got a place
    used_s: float = 0.0  # seconds of all places in use together
    waited_s: float = 0.0  # seconds that all requests together waited for a place


class Places:
    """``limit`` places of one event loop."""

    def __init__(self, limit: int) -> None:
        self._places = asyncio.Semaphore(limit)
        self._used = self._waiting = self._requests = 0
        self._used_s = self._waited_s = 0.0
        self._since = time.monotonic()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A place for as long as the context lasts."""
        self._count(waiting=1)
        try:
            await self._places.acquire()
        finally:
            self._count(waiting=-1)
        self._requests += 1
        self._count(used=1)
        try:
            yield
        finally:
            self._count(used=-1)
            self._places.release()

    def load(self) -> Load:
        self._count()
        return Load(self._requests, self._used_s, self._waited_s)

    def _count(self, used: int = 0, waiting: int = 0) -> None:
        now = time.monotonic()
        self._used_s += self._used * (now - self._since)
        self._waited_s += self._waiting * (now - self._since)
        self._since = now
        self._used += used
        self._waiting += waiting
