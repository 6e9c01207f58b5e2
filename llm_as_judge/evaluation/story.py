"""Contents of a run's report: its steps, the shapes at its beginning and end, its best and worst rollouts.

The log is read once. Of the rollouts only figures and the few that are shown are kept.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from llm_as_judge.evaluation.analysis import Analysis, LogSums
from llm_as_judge.events import EvalEvent, PromptEvent, RolloutEvent, RunEvent, StepReport
from llm_as_judge.runlog import LogReader
from llm_as_judge.types import DOMAINS, Domain

#: Part of the run that counts as its beginning, and as its end.
ENDS = 0.1
_SHOWN = 5  # of the best and of the worst rollouts


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


def read_story(log: Path, results: Path) -> Story:
    """``results`` is the run's results file; results of another run are ignored."""
    reader, sums = LogReader(log), LogSums()
    best, worst = dict[tuple[str, ...], Shown](), dict[tuple[str, ...], Shown]()
    for found in reader.finished():
        if isinstance(found, RunEvent):
            sums.add(found)
            continue
        for rollout in found.rollouts:
            sums.add(rollout)
            if rollout.reward is None:
                continue
            kind, shown = (
                (rollout.domain, rollout.shape, rollout.outcome),
                Shown(rollout, found.prompts.get(rollout.problem)),
            )
            best[kind] = max(shown, best.get(kind, shown), key=_reward)
            worst[kind] = min(shown, worst.get(kind, shown), key=_reward)
    rollouts = [sums.steps.get(step.step, []) for step in reader.steps]
    few = max(1, round(ENDS * len(rollouts)))
    return Story(
        log=log,
        run=reader.run,
        steps=reader.steps,
        evals=reader.evals,
        costs=list(itertools.accumulate(sum(rollout.cost for rollout in own) for own in rollouts)),
        before=_shapes(rollouts[:few]),
        after=_shapes(rollouts[-few:]),
        best=_first(sorted(best.values(), key=_reward, reverse=True)),
        worst=_first(sorted(worst.values(), key=_reward)),
        analysis=sums.analysis(log, reader.steps),
        results=_results(results, reader.run.id),
    )


def _reward(shown: Shown) -> float:
    return shown.rollout.reward or 0.0


def _first(ranked: Sequence[Shown]) -> list[Shown]:
    """The first ones, with at most two that failed in the same way."""
    failed, found = Counter[str](), list[Shown]()
    for shown in ranked:
        outcome = shown.rollout.outcome
        failed[outcome] += outcome != "finished"
        if failed[outcome] <= 2:
            found.append(shown)
    return found[:_SHOWN]


def _shapes(steps: Sequence[Sequence[RolloutEvent]]) -> dict[Domain, Counter[str]]:
    rollouts = [rollout for own in steps for rollout in own]
    counts = {d: Counter(r.shape or "no operator" for r in rollouts if r.domain == d) for d in DOMAINS}
    return {domain: own for domain, own in counts.items() if own}


def _results(path: Path, run: str) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    return found if isinstance(found, dict) and found.get("run_id") == run else {}
