"""Exact quotas over time: which of several names gets the next slot, so that each is always within one of its share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import cycle, islice
from typing import Generic, TypeVar

K = TypeVar("K")


class Quota(Generic[K]):
    """Slots for the names of ``ratios`` (> 0, need not sum to 1); ``drawn`` counts them and may be set to resume;
    ``weights`` are the ratios in whole numbers.

    Earliest deadline among the names that are due (Tijdeman 1980); the plain largest remainder does not keep within
    one of the share with three names or more. Whole numbers only, so that the millionth slot is as exact as the first.
    """

    def __init__(self, ratios: Mapping[K, float]) -> None:
        if not ratios or any(not math.isfinite(ratio) or ratio <= 0 for ratio in ratios.values()):
            raise ValueError(f"ratios must be > 0, got {dict(ratios)}")
        # the decimal that was written, not its binary neighbour: 0.3 is 3/10
        exact = {name: Fraction(str(ratio)) for name, ratio in ratios.items()}
        common = math.lcm(*(ratio.denominator for ratio in exact.values()))
        weights = {name: int(ratio * common) for name, ratio in exact.items()}
        self.weights = weights
        self._total = sum(weights.values())
        largest = math.lcm(*weights.values())
        self._period = {name: largest // weight for name, weight in weights.items()}
        self._slack = max(2, 2 * len(weights) - 2)
        self.drawn = dict.fromkeys(weights, 0)

    def next(self) -> K:
        """The name whose slot comes now."""
        slot, total, k = sum(self.drawn.values()) + 1, self._total, self._slack
        best: tuple[int, K] | None = None
        for name, weight in self.weights.items():
            drawn = self.drawn[name]
            if k * (weight * slot - drawn * total) >= total:
                deadline = (k * drawn + k - 1) * self._period[name]
                if best is None or deadline < best[0]:
                    best = (deadline, name)
        assert best is not None  # the shares sum to 1, so somebody is behind
        self.drawn[best[1]] += 1
        return best[1]

    def take(self, n: int) -> Iterator[K]:
        """The next ``n`` names. Every ``sum(weights)`` slots all shares are exact, and the order begins anew."""
        if n > self._total and not any(self.drawn.values()):
            turns = []
            for _ in range(self._total):
                turns.append(self.next())
                yield turns[-1]
            for name in islice(cycle(turns), n - self._total):
                self.drawn[name] += 1
                yield name
        else:
            for _ in range(n):
                yield self.next()
