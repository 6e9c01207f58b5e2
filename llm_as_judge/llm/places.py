"""Places for requests at one server: at most so many at once, first come first served, and what they were used for.

A server that has too much to do says so (429) or answers too late. There are then half as many places (multiplicative
decrease), and one more for each round of requests that it answers (additive increase), up to the limit again: TCP's
way to share what nobody knows the size of (RFC 5681).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """Sums since the start; the difference of two, divided by the seconds between, is the mean number of places."""

    requests: int = 0  # that got a place
    used_s: float = 0.0  # seconds of all places in use together
    waited_s: float = 0.0  # seconds that all requests together waited for a place

    def __add__(self, other: Load) -> Load:
        return Load(self.requests + other.requests, self.used_s + other.used_s, self.waited_s + other.waited_s)


class Places:
    """At most ``limit`` places of one event loop."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._width = float(limit)  # places there are now, and a part of the next one
        self._narrowed = -1.0  # when
        self._queue: deque[asyncio.Future[None]] = deque()
        self._used = self._requests = 0
        self._used_s = self._waited_s = 0.0
        self._since = time.monotonic()

    @property
    def width(self) -> int:
        """Places there are now."""
        return int(self._width)

    @property
    def pressure(self) -> float:
        """Requests at the server and before it, for each place."""
        return (self._used + len(self._queue)) / self.width

    @asynccontextmanager
    async def one(self) -> AsyncIterator[float]:
        """A place for as long as the context lasts; the value is when it began."""
        self._count()
        if self._queue or self._used >= self.width:
            await self._wait()
        else:
            self._used += 1
        self._requests += 1
        try:
            yield time.monotonic()
        finally:
            self._count()
            self._used -= 1
            self._let_in()

    def answered(self) -> None:
        """The server answered a request in time."""
        self._width = min(self.limit, self._width + 1 / self._width)
        self._let_in()

    def overloaded(self, begun: float) -> bool:
        """The server did not cope with a request that began then. Whether there are fewer places now: those who were
        there together are one sign, not many.
        """
        if begun < self._narrowed or self._width == 1:
            return False
        self._width, self._narrowed = max(1.0, self._width / 2), time.monotonic()
        return True

    def load(self) -> Load:
        self._count()
        return Load(self._requests, self._used_s, self._waited_s)

    async def _wait(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            await place
        except asyncio.CancelledError:
            self._count()
            if place.done() and not place.cancelled():  # it was given one and cannot take it
                self._used -= 1
                self._let_in()
            elif place in self._queue:
                self._queue.remove(place)
            raise

    def _let_in(self) -> None:
        self._count()
        while self._queue and self._used < self.width:
            place = self._queue.popleft()
            if not place.done():
                self._used += 1
                place.set_result(None)

    def _count(self) -> None:
        now = time.monotonic()
        self._used_s += self._used * (now - self._since)
        self._waited_s += len(self._queue) * (now - self._since)
        self._since = now
