"""Ablations: the same training with and without a part, over the same seeds, compared in pairs.

``without`` gives the settings that remove a part, ``worths`` compares the finished runs. Nothing is trained here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.intervals import Estimate
from llm_as_judge.rewards.terms import TERMS

#: Parts removed by a setting. "problem" and "rewards" are controls: what is learned from the domain alone, from noise.
_SETTINGS: Mapping[str, Mapping[str, object]] = {
    "layer1": {"workflow.layer1": False},
    "layer2": {"workflow.enhancer": None},
    "buffer": {"experience_buffer.top_k": 0},
    "problem": {"workflow.show_problem": False},
    "rewards": {"training.shuffle_rewards": True},
}
PARTS = (*_SETTINGS, *(f"reward.{term}" for term in TERMS if term != "correctness"))
#: Two-sided 95 % quantiles of Student's t distribution for 1, 2, ... degrees of freedom; the last one is used beyond
#: the table, which makes intervals slightly too wide.
_STUDENT = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)


#: A trained policy on the held-out problems: accuracy in [0, 1] and executor tokens per workflow.
HeldOut = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Worth:
    """``accuracy`` and ``tokens`` without the part; ``worth`` and ``tokens_added`` are with it minus without it."""

    part: str
    accuracy: float
    tokens: float
    worth: Estimate
    tokens_added: Estimate


def without(part: str, weights: Mapping[str, float]) -> dict[str, object]:
    """Return settings that remove ``part``; the weight of a reward term goes to correctness. Raises ``ConfigError``."""
    if part not in PARTS:
        raise ConfigError(f"--ablate {part!r}: unknown part; choose from {', '.join(PARTS)}")
    if part in _SETTINGS:
        return dict(_SETTINGS[part])
    term = part.removeprefix("reward.")
    changed = {**weights, term: 0.0, "correctness": weights["correctness"] + weights.get(term, 0.0)}
    return {"reward.reward_weights": changed}


def difference(with_it: Sequence[float], without_it: Sequence[float]) -> Estimate:
    """Compute the mean over seeds, paired, with Student's 95 % interval (NaN for a single seed)."""
    pairs = [a - b for a, b in zip(with_it, without_it, strict=True)]
    n, value = len(pairs), fmean(pairs)
    half = _STUDENT[min(n - 1, len(_STUDENT)) - 1] * stdev(pairs) / math.sqrt(n) if n > 1 else math.nan
    return Estimate(value, value - half, value + half, n)


def worths(full: Sequence[HeldOut], ablated: Mapping[str, Sequence[HeldOut]]) -> list[Worth]:
    """Compute what each part is worth; ``full[i]`` and ``ablated[part][i]`` have the same seed."""
    accuracy, tokens = zip(*full, strict=True)
    found = []
    for part, runs in ablated.items():
        own, spent = zip(*runs, strict=True)
        found.append(Worth(part, fmean(own), fmean(spent), difference(accuracy, own), difference(tokens, spent)))
    return found
