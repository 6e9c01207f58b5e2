"""Contents of a run's report: its steps, the shapes at its beginning and end, its best and worst rollouts.

The log is read once. Of the rollouts only counts and the few that are shown are kept.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from llm_as_judge.evaluation.analysis import Analysis, LogSums
from llm_as_judge.events import EvalEvent, PromptEvent, RolloutEvent, RunEvent, StepReport
from llm_as_judge.runlog import FinishedStep, LogReader
from llm_as_judge.types import DOMAINS, Domain

#: Part of the run that counts as its beginning, and as its end.
ENDS = 0.1
_SHOWN = 5  # of the best and of the worst rollouts
_KEPT = 200  # kinds of rollouts that are compared


@dataclass(frozen=True, slots=True)
class Shown:
    rollout: RolloutEvent
    prompt: PromptEvent | None


@dataclass(frozen=True, slots=True)
class Story:
    """``before`` and ``after`` count the shapes of the first and last steps, by domain. The rollouts in ``best`` and in
    ``worst`` differ in domain, shape or outcome. ``results`` is the run's results file; empty until its end.
    """

    log: Path
    run: RunEvent
    steps: Sequence[StepReport]
    evals: Sequence[EvalEvent]
    costs: Sequence[float]  # of the run up to each step
    before: Mapping[Domain, Counter[str]]
    after: Mapping[Domain, Counter[str]]
    best: Sequence[Shown]
    worst: Sequence[Shown]
    analysis: Analysis
    results: Mapping[str, Any]


@dataclass
class _Extremes:
    """The rollout with the highest ``sign * reward`` of each kind; the later one of equals."""

    sign: int
    _of: dict[tuple[str, str, str], Shown] = field(default_factory=dict)

    def add(self, shown: Shown) -> None:
        rollout = shown.rollout
        kind = rollout.domain, rollout.shape, rollout.outcome
        if kind not in self._of or self._worth(shown) >= self._worth(self._of[kind]):
            self._of[kind] = shown
        if len(self._of) > 2 * _KEPT:
            ranked = sorted(self._of.items(), key=lambda item: -self._worth(item[1]))
            self._of = dict(ranked[:_KEPT])

    def first(self) -> list[Shown]:
        """At most two that failed in the same way."""
        failed, found = Counter[str](), list[Shown]()
        for shown in sorted(self._of.values(), key=self._worth, reverse=True):
            outcome = shown.rollout.outcome
            failed[outcome] += outcome != "finished"
            if failed[outcome] <= 2:
                found.append(shown)
        return found[:_SHOWN]

    def _worth(self, shown: Shown) -> float:
        return self.sign * (shown.rollout.reward or 0.0)


def read_story(log: Path, results: Path) -> Story:
    """``results`` is the run's results file; results of another run are ignored."""
    reader, sums, best, worst = LogReader(log), LogSums(), _Extremes(1), _Extremes(-1)
    costs, shapes = dict[int, float](), dict[int, dict[str, Counter[str]]]()
    for found in reader.finished():
        if isinstance(found, RunEvent):
            sums.add(found)
            costs = {step: cost for step, cost in costs.items() if step <= found.kept}
            continue
        step = found.report.step
        costs[step], shapes[step] = sum(rollout.cost for rollout in found.rollouts), _shapes(found)
        for rollout in found.rollouts:
            sums.add(rollout)
            if rollout.reward is not None:
                for extremes in (best, worst):
                    extremes.add(Shown(rollout, found.prompts.get(rollout.problem)))
    steps = reader.steps
    few, order = max(1, round(ENDS * len(steps))), [step.step for step in steps]
    return Story(
        log=log,
        run=reader.run,
        steps=steps,
        evals=reader.evals,
        costs=list(itertools.accumulate(costs[step] for step in order)),
        before=_joined([shapes[step] for step in order[:few]]),
        after=_joined([shapes[step] for step in order[-few:]]),
        best=best.first(),
        worst=worst.first(),
        analysis=sums.analysis(log, steps),
        results=_results(results, reader.run.id),
    )


def _shapes(step: FinishedStep) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for rollout in step.rollouts:
        found.setdefault(rollout.domain, Counter())[rollout.shape or "no operator"] += 1
    return found


def _joined(parts: Sequence[Mapping[str, Counter[str]]]) -> dict[Domain, Counter[str]]:
    total = {domain: sum((part.get(domain, Counter()) for part in parts), Counter[str]()) for domain in DOMAINS}
    return {domain: counts for domain, counts in total.items() if counts}


def _results(path: Path, run: str) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    return found if isinstance(found, dict) and found.get("run_id") == run else {}
