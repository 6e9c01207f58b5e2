"""Limit on the requests in flight at one server: adapts to overload and measures its use.

An overloaded server replies with 429 or too late. The limit is then halved; it grows by one for each round of answered
requests, up to the configured one (additive increase, multiplicative decrease, RFC 5681). With retries alone, half of
the rollouts are lost at a server that takes 4 requests at once or 10 per second.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """Sums since the start; the difference of two, divided by the seconds between, is the mean number of places."""

    requests: int = 0  # that got a place
    used_s: float = 0.0  # sum over all places in use
    waited_s: float = 0.0  # sum over all requests waiting for a place

    def __add__(self, other: "Load") -> "Load":
        return Load(self.requests + other.requests, self.used_s + other.used_s, self.waited_s + other.waited_s)


class Places:
    """At most ``limit`` requests in flight; ``width`` is the limit at present."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.width = float(limit)
        self._narrowed_at = 0.0
        self._free = asyncio.Condition()
        self._used = self._waiting = 0
        self._load, self._since = Load(), time.monotonic()

    @property
    def pressure(self) -> float:
        """Requests in flight and waiting, per place."""
        return (self._used + self._waiting) / self.width

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold a place until the end of the context."""
        self._change(waiting=1)
        try:
            async with self._free:
                await self._free.wait_for(lambda: self._used < int(self.width))
                self._change(used=1)
        finally:
            self._change(waiting=-1)
        try:
            yield
        finally:
            self._change(used=-1)
            async with self._free:
                self._free.notify_all()

    def answered(self) -> None:
        self.width = min(self.limit, self.width + 1 / self.width)

    def overloaded(self, begun: float) -> None:
        """Reduce the limit: the server did not cope with a request sent at ``begun`` (``time.monotonic``).

        Requests sent before the last halving have no effect.
        """
        if begun >= self._narrowed_at:
            self.width, self._narrowed_at = max(1.0, self.width / 2), time.monotonic()

    def load(self) -> Load:
        """Return ``Load`` with requests that are in flight or waiting."""
        self._change()
        return self._load

    def _change(self, *, used: int = 0, waiting: int = 0) -> None:
        now = time.monotonic()
        elapsed, self._since = now - self._since, now
        self._load += Load(max(used, 0), self._used * elapsed, self._waiting * elapsed)
        self._used += used
        self._waiting += waiting
