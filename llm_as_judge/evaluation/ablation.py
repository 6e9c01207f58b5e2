"""What a part is worth: the same training with and without it, over the same seeds, compared pairwise.

No training happens here: ``without`` names the settings that take a part away, ``table`` sums up what the runs came to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from llm_as_judge.errors import ConfigError
from llm_as_judge.rewards.terms import TERMS

PARTS: tuple[str, ...] = ("layer1", "layer2", "buffer", *(f"reward.{term}" for term in TERMS if term != "correctness"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run after training: accuracy in [0, 1] and executor tokens per workflow, on the held-out problems."""

    accuracy: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean over seeds with the half-width of its 95 % interval (NaN for a single seed)."""

    mean: float
    half: float


@dataclass(frozen=True, slots=True)
class Worth:
    """``accuracy`` and ``tokens`` without the part; ``worth`` and ``saved`` are with it minus without it."""

    part: str
    accuracy: float
    tokens: float
    worth: Difference
    saved: Difference

    def as_json(self) -> dict[str, Any]:
        return {
            "part": self.part,
            "accuracy": self.accuracy,
            "tokens": self.tokens,
            "worth": [self.worth.mean, _known(self.worth.half)],
            "tokens_added": [self.saved.mean, _known(self.saved.half)],
        }


def without(part: str, weights: Mapping[str, float]) -> dict[str, object]:
    """The settings that take ``part`` away; a reward term's weight goes to correctness. Raises ``ConfigError``."""
    if part == "layer1":
        return {"workflow.layer1": False}
    if part == "layer2":
        return {"workflow.enhanced_operators": []}
    if part == "buffer":
        return {"experience_buffer.enabled": False}
    term = part.removeprefix("reward.")
    if part not in PARTS:
        raise ConfigError(f"--ablate {part!r}: there are {', '.join(PARTS)}")
    changed = {**weights, term: 0.0, "correctness": weights["correctness"] + weights.get(term, 0.0)}
    return {"reward.reward_weights": changed}


def difference(with_it: Sequence[float], without_it: Sequence[float]) -> Difference:
    """Paired by seed: mean and half-width of Student's 95 % interval."""
    pairs = [a - b for a, b in zip(with_it, without_it, strict=True)]
    n = len(pairs)
    if n < 2:
        return Difference(fmean(pairs), math.nan)
    return Difference(fmean(pairs), students_t(n - 1) * stdev(pairs) / math.sqrt(n))


def students_t(freedom: int, level: float = 0.95) -> float:
    """Two-sided quantile of Student's distribution with ``freedom`` degrees of freedom."""
    from mpmath import betainc, findroot

    def outside(t: float) -> float:
        return float(betainc(freedom / 2, 0.5, 0, freedom / (freedom + t * t), regularized=True)) - (1 - level)

    return float(findroot(outside, (1.0, 13.0 if freedom == 1 else 5.0), solver="anderson"))


def worths(full: Sequence[Outcome], ablated: Mapping[str, Sequence[Outcome]]) -> list[Worth]:
    """What each part is worth; ``full[i]`` and ``ablated[part][i]`` are of the same seed."""
    return [
        Worth(
            part,
            fmean(run.accuracy for run in runs),
            fmean(run.tokens for run in runs),
            difference([run.accuracy for run in full], [run.accuracy for run in runs]),
            difference([run.tokens for run in full], [run.tokens for run in runs]),
        )
        for part, runs in ablated.items()
    ]


def markdown(full: Sequence[Outcome], ablated: Sequence[Worth]) -> str:
    """The table as it goes into a page: accuracies in percent, differences in points, intervals in brackets."""
    lines = [
        "| without | accuracy % | worth of the part, points [95 %] | tokens | tokens added by the part [95 %] |",
        "| --- | ---: | ---: | ---: | ---: |",
        f"| nothing | {100 * fmean(r.accuracy for r in full):.1f} | | {fmean(r.tokens for r in full):.0f} | |",
    ]
    for row in ablated:
        worth, tokens = _interval(row.worth, 100, 1), _interval(row.saved, 1, 0)
        lines.append(f"| {row.part} | {100 * row.accuracy:.1f} | {worth} | {row.tokens:.0f} | {tokens} |")
    return "\n".join(lines)


def _known(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value


def _interval(value: Difference, scale: float, digits: int) -> str:
    mean, half = scale * value.mean, scale * value.half
    text = f"{mean:+.{digits}f}"
    return text if math.isnan(half) else f"{text} [{mean - half:+.{digits}f}, {mean + half:+.{digits}f}]"
