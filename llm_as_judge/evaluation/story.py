"""What a report tells of a run: its steps, the shapes at its beginning and end, its best and worst rollouts.

One pass over the event log. Of the rollouts only counts and the few that are shown are kept.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_as_judge.evaluation.analysis import Analysis, LogSums
from llm_as_judge.evaluation.logged import Begun, LoggedPrompt, LoggedRollout, LoggedStep, StepReader
from llm_as_judge.types import DOMAINS, Domain

#: Part of the run that is its beginning, and its end.
ENDS = 0.1
_SHOWN = 5  # rollouts, of the best and of the worst
_KEPT = 200  # kinds of rollouts that are compared


@dataclass(frozen=True, slots=True)
class Shown:
    """A rollout and what its policy was asked, where the log tells it."""

    rollout: LoggedRollout
    prompt: LoggedPrompt | None


@dataclass(frozen=True, slots=True)
class Story:
    """``before`` and ``after``: how often each shape was written in the first and last steps, by domain. ``best`` and
    ``worst`` are of different shapes or failures. ``results``: what the run wrote at its end; empty before that.
    """

    log: Path
    run: str
    settings: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    validations: Sequence[Mapping[str, Any]]
    costs: Sequence[float]  # of the run up to each step
    before: Mapping[Domain, Counter[str]]
    after: Mapping[Domain, Counter[str]]
    best: Sequence[Shown]
    worst: Sequence[Shown]
    analysis: Analysis
    results: Mapping[str, Any]


class _Extremes:
    """The rollout of the highest reward of each kind; the later one of equals."""

    def __init__(self, worth: Callable[[LoggedRollout], float]) -> None:
        self._worth = worth
        self._of: dict[tuple[str, str, str], Shown] = {}

    def add(self, shown: Shown) -> None:
        rollout = shown.rollout
        kind = rollout.domain, rollout.shape or "", rollout.outcome
        if kind not in self._of or self._worth(rollout) >= self._worth(self._of[kind].rollout):
            self._of[kind] = shown
        if len(self._of) > 2 * _KEPT:
            self._of = {self._kind(shown): shown for shown in self._sorted()[:_KEPT]}

    def first(self) -> list[Shown]:
        """Of those that failed in one way no more than two."""
        failed, found = Counter[str](), list[Shown]()
        for shown in self._sorted():
            outcome = shown.rollout.outcome
            failed[outcome] += outcome != "finished"
            if failed[outcome] <= 2:
                found.append(shown)
        return found[:_SHOWN]

    def _sorted(self) -> list[Shown]:
        return sorted(self._of.values(), key=lambda shown: self._worth(shown.rollout), reverse=True)

    @staticmethod
    def _kind(shown: Shown) -> tuple[str, str, str]:
        return shown.rollout.domain, shown.rollout.shape or "", shown.rollout.outcome


def read_story(log: Path, results: Path) -> Story:
    """``results`` is the run's results file; what is there of another run is not this one's."""
    run, settings = "", dict[str, Any]()
    steps, costs = dict[int, Mapping[str, Any]](), dict[int, float]()
    shapes = dict[int, dict[str, Counter[str]]]()
    best, worst = _Extremes(lambda r: r.reward or 0.0), _Extremes(lambda r: -(r.reward or 0.0))
    sums, validations = LogSums(), dict[int, Mapping[str, Any]]()

    def seen(event: LoggedRollout | Mapping[str, Any]) -> None:
        sums.add(event)
        if isinstance(event, Mapping) and event["kind"] == "eval":
            validations[event["step"]] = event

    for found in StepReader(log).new(seen):
        if isinstance(found, Begun):
            run, settings = found.run, dict(found.settings)
            for step in [step for step in steps if step > found.kept]:
                del steps[step], costs[step], shapes[step]
            continue
        steps[found.step], shapes[found.step] = found.report, _shapes(found)
        costs[found.step] = sum(rollout.cost for rollout in found.rollouts)
        for rollout in found.rollouts:
            if rollout.reward is not None:
                for extremes in (best, worst):
                    extremes.add(Shown(rollout, found.prompts.get(rollout.problem)))
    order = sorted(steps)
    few = max(1, round(ENDS * len(order)))
    total, spent = 0.0, list[float]()
    for step in order:
        total += costs[step]
        spent.append(total)
    return Story(
        log=log,
        run=run,
        settings=settings,
        steps=[steps[step] for step in order],
        validations=[validations[step] for step in sorted(validations)],
        costs=spent,
        before=_joined([shapes[step] for step in order[:few]]),
        after=_joined([shapes[step] for step in order[-few:]]),
        best=best.first(),
        worst=worst.first(),
        analysis=sums.analysis(log),
        results=_results(results, run),
    )


def _shapes(step: LoggedStep) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for rollout in step.rollouts:
        found.setdefault(rollout.domain, Counter())[rollout.shape or "no operator"] += 1
    return found


def _joined(parts: Sequence[Mapping[str, Counter[str]]]) -> dict[Domain, Counter[str]]:
    total: dict[Domain, Counter[str]] = {domain: Counter() for domain in DOMAINS}
    for part in parts:
        for domain in DOMAINS:
            total[domain] += part.get(domain, Counter())
    return {domain: counts for domain, counts in total.items() if counts}


def _results(path: Path, run: str) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("run_id") == run else {}
