"""Ablations: the same training with and without a part, over the same seeds, compared in pairs.

``without`` gives the settings that remove a part, ``worths`` compares the finished runs. Nothing is trained here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from llm_as_judge.errors import ConfigError
from llm_as_judge.rewards.terms import TERMS
from llm_as_judge.runlog import json_data

#: Parts removed by a setting. "problem" and "rewards" are controls: what is learned from the domain alone, from noise.
_SETTINGS: Mapping[str, Mapping[str, object]] = {
    "layer1": {"workflow.layer1": False},
    "layer2": {"workflow.enhancer": None},
    "buffer": {"experience_buffer.enabled": False},
    "problem": {"workflow.show_problem": False},
    "rewards": {"training.shuffle_rewards": True},
}
PARTS = (*_SETTINGS, *(f"reward.{term}" for term in TERMS if term != "correctness"))
#: Two-sided 95 % quantiles of Student's t distribution for 1, 2, ... degrees of freedom; the last one is used beyond
#: the table, which makes intervals slightly too wide.
_STUDENT = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A trained policy on the held-out problems: accuracy in [0, 1] and executor tokens per workflow."""

    accuracy: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean over seeds with the half-width of its 95 % interval (NaN for a single seed)."""

    mean: float
    half: float

    def text(self, scale: float, digits: int) -> str:
        mean, half = scale * self.mean, scale * self.half
        text = f"{mean:+.{digits}f}"
        return text if math.isnan(half) else f"{text} [{mean - half:+.{digits}f}, {mean + half:+.{digits}f}]"


@dataclass(frozen=True, slots=True)
class Worth:
    """``accuracy`` and ``tokens`` without the part; ``worth`` and ``tokens_added`` are with it minus without it."""

    part: str
    accuracy: float
    tokens: float
    worth: Difference
    tokens_added: Difference

    def as_json(self) -> dict[str, Any]:
        return dict(json_data(self))


def without(part: str, weights: Mapping[str, float]) -> dict[str, object]:
    """Settings that remove ``part``; the weight of a reward term goes to correctness. Raises ``ConfigError``."""
    if part not in PARTS:
        raise ConfigError(f"--ablate {part!r}: unknown part; choose from {', '.join(PARTS)}")
    if part in _SETTINGS:
        return dict(_SETTINGS[part])
    term = part.removeprefix("reward.")
    changed = {**weights, term: 0.0, "correctness": weights["correctness"] + weights.get(term, 0.0)}
    return {"reward.reward_weights": changed}


def difference(with_it: Sequence[float], without_it: Sequence[float]) -> Difference:
    """Paired by seed, with Student's 95 % interval."""
    pairs = [a - b for a, b in zip(with_it, without_it, strict=True)]
    n = len(pairs)
    half = _STUDENT[min(n - 1, len(_STUDENT)) - 1] * stdev(pairs) / math.sqrt(n) if n > 1 else math.nan
    return Difference(fmean(pairs), half)


def worths(full: Sequence[Outcome], ablated: Mapping[str, Sequence[Outcome]]) -> list[Worth]:
    """``full[i]`` and ``ablated[part][i]`` have the same seed."""
    accuracy, tokens = [run.accuracy for run in full], [run.tokens for run in full]
    found = []
    for part, runs in ablated.items():
        own, spent = [run.accuracy for run in runs], [run.tokens for run in runs]
        found.append(Worth(part, fmean(own), fmean(spent), difference(accuracy, own), difference(tokens, spent)))
    return found


def markdown(full: Sequence[Outcome], ablated: Sequence[Worth]) -> str:
    """A table with accuracies in percent, differences in points and intervals in brackets."""
    lines = [
        "| without | accuracy % | worth of the part, points [95 %] | tokens | tokens added by the part [95 %] |",
        "| --- | ---: | ---: | ---: | ---: |",
        f"| nothing | {100 * fmean(r.accuracy for r in full):.1f} | | {fmean(r.tokens for r in full):.0f} | |",
    ]
    for row in ablated:
        worth, tokens = row.worth.text(100, 1), row.tokens_added.text(1, 0)
        lines.append(f"| {row.part} | {100 * row.accuracy:.1f} | {worth} | {row.tokens:.0f} | {tokens} |")
    return "\n".join(lines)
