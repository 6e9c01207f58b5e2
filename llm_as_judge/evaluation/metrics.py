"""Official metrics and their intervals, apart from the reward.

Accuracy, exact match, F1 and pass@k with Wilson and bootstrap intervals; standard library only. Unscored
answers (None) are left out and counted, never taken for wrong ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llm_as_judge.answers.qa_metrics import squad_em, squad_f1

Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval over ``n`` scored answers; without any, ``value`` is nan and 0 to 1 is
    open.
    """

    value: float
    low: float
    high: float
    n: int
    unscored: int = 0


def accuracy(correct: Sequence[bool | None]) -> Estimate:
    """Share of right answers among the scored ones, with Wilson's interval."""
    scored = [c for c in correct if c is not None]
    low, high = wilson_interval(sum(scored), len(scored))
    value = sum(scored) / len(scored) if scored else math.nan
    return Estimate(value, low, high, len(scored), len(correct) - len(scored))


def wilson_interval(k: int, n: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval for ``k`` of ``n`` (Wilson 1927); (0, 1) for n = 0."""
    if not 0 <= k <= n:
        raise ValueError(f"k must be in [0, n], got k = {k}, n = {n}")
    if n == 0:
        return 0.0, 1.0
    share, spread = k / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return (0.0 if k == 0 else centre - half), (1.0 if k == n else centre + half)


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; nan for no values."""
    return math.fsum(values) / len(values) if values else math.nan


def bootstrap_interval(
    values: Sequence[float], *, resamples: int = 2000, seed: int = 0, level: float = 0.95
) -> Estimate:
    """Mean with its percentile bootstrap interval (Efron 1979); the same seed gives the same interval."""
    if not values:
        return Estimate(math.nan, 0.0, 1.0, 0)
    rng = random.Random(seed)
    means = sorted(mean(rng.choices(values, k=len(values))) for _ in range(resamples))
    skip = int((1 - level) / 2 * resamples)
    return Estimate(mean(values), means[skip], means[-1 - skip], len(values))


def paired_difference(
    a: Sequence[float | None], b: Sequence[float | None], *, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Mean of ``a - b`` over the same problems in the same order, with its bootstrap interval.

    A problem unscored on either side is left out and counted. Pairing removes the spread between problems, so
    the interval is narrower than that of two separate means.
    """
    if len(a) != len(b):
        raise ValueError(f"paired scores must be as many, got {len(a)} and {len(b)}")
    differences = [float(x) - float(y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    estimate = bootstrap_interval(differences, resamples=resamples, seed=seed)
    low, high = (estimate.low, estimate.high) if differences else (-1.0, 1.0)
    return Estimate(estimate.value, low, high, len(differences), len(a) - len(differences))


@dataclass(frozen=True, slots=True)
class QAScores:
    """Exact match and F1 in [0, 1], over all questions and apart (nan where there are none)."""

    exact: float
    f1: float
    exact_answerable: float
    f1_answerable: float
    unanswerable: float  # share of unanswerable questions recognised as such
    n: int


def qa_scores(
    predictions: Sequence[str],
    golds: Sequence[Sequence[str]],
    f1: Callable[[str, Sequence[str]], float] = squad_f1,
) -> QAScores:
    """Official scores; empty ``golds`` mean no answer. Pass ``hotpot_f1`` for HotpotQA."""
    if len(predictions) != len(golds):
        raise ValueError(f"{len(predictions)} predictions for {len(golds)} questions")
    rows = [(bool(gold), squad_em(said, gold), f1(said, gold)) for said, gold in zip(predictions, golds, strict=True)]
    return QAScores(
        exact=mean([em for _, em, _ in rows]),
        f1=mean([score for _, _, score in rows]),
        exact_answerable=mean([em for has, em, _ in rows if has]),
        f1_answerable=mean([score for has, _, score in rows if has]),
        unanswerable=mean([em for has, em, _ in rows if not has]),
        n=len(rows),
    )


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased chance that one of ``k`` samples passes when ``c`` of ``n`` did (Chen et al. 2021)."""
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"need 0 <= c <= n and 1 <= k <= n, got n = {n}, c = {c}, k = {k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)
