"""Shares, means and differences with 95 % intervals.

Unscored answers (None) are counted and left out; they never count as wrong.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import stdev
from typing import Any

#: Number of values above which the normal interval replaces the bootstrap, and resamples of the latter.
_BOOTSTRAP_LIMIT = _RESAMPLES = 2000
Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval over ``n`` scored answers; without any, NaN with the interval 0 to 1."""

    value: float
    low: float
    high: float
    n: int
    unscored: int = 0


def as_json(estimates: Mapping[Any, Estimate]) -> dict[str, Any]:
    """Return the values by name, and ``interval`` with the bounds of each."""
    values: dict[str, Any] = {name: e.value for name, e in estimates.items()}
    return {**values, "interval": {name: [e.low, e.high] for name, e in estimates.items()}}


def accuracy(correct: Sequence[bool | None]) -> Estimate:
    """Compute the share of correct answers among the scored ones, with Wilson's interval."""
    scored = [c for c in correct if c is not None]
    low, high = wilson_interval(sum(scored), len(scored))
    return Estimate(mean(scored), low, high, len(scored), len(correct) - len(scored))


def estimate(values: Sequence[float | None]) -> Estimate:
    """Average values in [0, 1] (None: unscored), with Wilson's interval for zeros and ones, else the bootstrap's."""
    known = [float(v) for v in values if v is not None]
    if all(v in (0.0, 1.0) for v in known):
        return accuracy([None if v is None else bool(v) for v in values])
    return replace(bootstrap_interval(known), unscored=len(values) - len(known))


def wilson_interval(k: int, n: int) -> tuple[float, float]:
    """Compute Wilson's score interval for ``k`` of ``n`` (Wilson 1927); (0, 1) for n = 0."""
    if not 0 <= k <= n:
        raise ValueError(f"k must be in [0, n], got k = {k}, n = {n}")
    if n == 0:
        return 0.0, 1.0
    share, spread = k / n, Z95 * Z95 / n
    centre = (share + spread / 2) / (1 + spread)
    half = Z95 * math.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return (0.0 if k == 0 else centre - half), (1.0 if k == n else centre + half)


def mean(values: Sequence[float]) -> float:
    """Compute the arithmetic mean; NaN for no values."""
    return math.fsum(values) / len(values) if values else math.nan


def mean_known(values: Sequence[float]) -> float:
    """Average the values that are not NaN."""
    return mean([value for value in values if not math.isnan(value)])


def bootstrap_interval(values: Sequence[float], lowest: float = 0.0) -> Estimate:
    """Average values in [lowest, 1] with the percentile bootstrap interval (Efron 1979), or the normal interval for
    very many values. If all are equal, as many others as Wilson's interval allows may be anything between the bounds.
    """
    if not values:
        return Estimate(math.nan, lowest, 1.0, 0)
    centre, n = mean(values), len(values)
    if min(values) == max(values):
        unseen = wilson_interval(0, n)[1]
        return Estimate(centre, centre - unseen * (centre - lowest), centre + unseen * (1 - centre), n)
    if n > _BOOTSTRAP_LIMIT:
        half = Z95 * stdev(values) / math.sqrt(n)
        return Estimate(centre, centre - half, centre + half, n)
    rng = random.Random(0)
    means = sorted(mean(rng.choices(values, k=n)) for _ in range(_RESAMPLES))
    skip = int(0.025 * _RESAMPLES)
    return Estimate(centre, means[skip], means[-1 - skip], n)


def paired_difference(a: Sequence[float | None], b: Sequence[float | None]) -> Estimate:
    """Average ``a - b`` over the same problems in the same order, with its bootstrap interval.

    Problems unscored on either side are counted and left out. Pairing removes the spread between problems.
    """
    if len(a) != len(b):
        raise ValueError(f"paired scores must have equal lengths, got {len(a)} and {len(b)}")
    differences = [float(x) - float(y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    return replace(bootstrap_interval(differences, -1.0), unscored=len(a) - len(differences))


def pass_at_k(n: int, c: int, k: int) -> float:
    """Estimate unbiasedly the probability that one of ``k`` samples passes if ``c`` of ``n`` did (Chen et al. 2021)."""
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"need 0 <= c <= n and 1 <= k <= n, got n = {n}, c = {c}, k = {k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)
