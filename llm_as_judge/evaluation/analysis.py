"""A run's log summed up: ``analyze_log`` for ``analyze``, ``read_story`` for the report.

Figures are by domain, dataset, operator, shape, lint code and failure, and over time. A log is read once. Rollouts are
kept by step without their texts, so that steps which a resumed run repeats count once.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from llm_as_judge.evaluation.metrics import mean, mean_known
from llm_as_judge.events import EvalEvent, PromptEvent, RolloutEvent, RunEvent, StepReport
from llm_as_judge.files import read_json
from llm_as_judge.runlog import LogReader, json_data
from llm_as_judge.types import DOMAINS, Domain
from llm_as_judge.workflow.lint.codes import CODES

_PARTS = 10  # of a run, over time
_LONGEST = 80  # characters of a failure
#: Part of the run that counts as its beginning, and as its end.
ENDS = 0.1
_SHOWN = 5  # of the best and of the worst rollouts


@dataclass(frozen=True, slots=True)
class Line:
    """Figures of some rollouts; shares in [0, 1], NaN for means over nothing."""

    rollouts: int
    accuracy: float  # of scored rollouts
    valid_rate: float  # without infrastructure faults
    reward: float  # mean over scored rollouts
    executor_tokens: float  # mean
    cost: float  # sum
    unscored: int


@dataclass(frozen=True, slots=True)
class Part:
    """Figures of consecutive steps; ``seconds`` is the mean of a step."""

    first: int
    last: int
    line: Line
    zero_variance: float  # share of groups without contrast
    kl: float
    entropy: float
    seconds: float

    def as_json(self) -> dict[str, Any]:
        fields = json_data(self)
        return {"steps": [fields.pop("first"), fields.pop("last")], **fields.pop("line"), **fields}


@dataclass(frozen=True, slots=True)
class Analysis:
    log: Path
    total: Line
    by: Mapping[str, Mapping[str, Line]]  # dimension, key; the most frequent first
    time: Sequence[Part]

    def as_json(self) -> dict[str, Any]:
        return {**json_data(self), "time": [part.as_json() for part in self.time]}


@dataclass
class LogSums:
    """Rollouts by step, without their texts."""

    steps: dict[int, list[RolloutEvent]] = field(default_factory=dict)

    def add(self, event: RolloutEvent | RunEvent) -> None:
        if isinstance(event, RunEvent):
            self.steps = {step: own for step, own in self.steps.items() if step <= event.kept}
        else:
            light = msgspec.structs.replace(event, text="", workflow=None, calls=(), judged=(), reference=())
            self.steps.setdefault(event.step, []).append(light)

    def analysis(self, path: Path, reports: Iterable[StepReport]) -> Analysis:
        rollouts = [rollout for own in self.steps.values() for rollout in own]
        by: dict[str, dict[str, Line]] = {}
        for dimension, keys in DIMENSIONS.items():
            groups: dict[str, list[RolloutEvent]] = {}
            for rollout in rollouts:
                for key in set(keys(rollout)):
                    groups.setdefault(key, []).append(rollout)
            ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
            by[dimension] = {key: _line(own) for key, own in ranked}
        return Analysis(path, _line(rollouts), by, self._over_time(reports))

    def _over_time(self, reports: Iterable[StepReport]) -> list[Part]:
        known = {report.step: report for report in reports}
        steps = sorted(self.steps)
        size = max(1, math.ceil(len(steps) / _PARTS))
        parts = []
        for start in range(0, len(steps), size):
            own = steps[start : start + size]
            part = [known[step] for step in own if step in known]
            groups = sum(report.groups for report in part)
            parts.append(
                Part(
                    first=own[0],
                    last=own[-1],
                    line=_line([rollout for step in own for rollout in self.steps[step]]),
                    zero_variance=sum(report.skipped_groups for report in part) / groups if groups else math.nan,
                    kl=mean_known([report.kl for report in part]),
                    entropy=mean_known([report.entropy for report in part]),
                    seconds=mean_known([sum(report.seconds.values()) for report in part]),
                )
            )
        return parts


def _line(rollouts: Sequence[RolloutEvent]) -> Line:
    scored = [rollout for rollout in rollouts if rollout.reward is not None]
    return Line(
        rollouts=len(rollouts),
        accuracy=mean([rollout.correct is True for rollout in scored]),
        valid_rate=mean([rollout.outcome == "finished" for rollout in rollouts if rollout.outcome != "fault"]),
        reward=mean([rollout.reward or 0.0 for rollout in scored]),
        executor_tokens=mean([rollout.executor_tokens for rollout in rollouts]),
        cost=sum(rollout.cost for rollout in rollouts),
        unscored=len(rollouts) - len(scored),
    )


def analyze_log(path: Path) -> Analysis:
    """Reads the whole log; unreadable lines are skipped."""
    reader, sums = LogReader(path), LogSums()
    for event in reader.new():
        if isinstance(event, (RolloutEvent, RunEvent)):
            sums.add(event)
    return sums.analysis(path, reader.steps)


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
            kind = rollout.domain, rollout.shape, rollout.outcome
            shown = Shown(rollout, found.prompts.get(rollout.problem))
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
    found = read_json(path)
    return found if found.get("run_id") == run else {}


def first_fatal(event: RolloutEvent) -> str:
    """The first fatal finding of lint with its meaning; empty without one."""
    code = next((code for code in event.lint if CODES.get(code, ("", False))[1]), "")
    return f"{code} {CODES[code][0]}" if code else ""


def _failure(event: RolloutEvent) -> str:
    """Kind of failure of a rollout; empty for a correct answer."""
    if event.correct is None:
        return f"unscored: {_head(event.reason or event.error)}"
    if event.outcome != "finished":
        return f"{event.outcome}: {first_fatal(event) or _head(event.error)}"
    return "" if event.correct else "wrong answer"


def _head(text: str) -> str:
    """The kind of an error, without details that differ from case to case."""
    first = text.partition("\n")[0].partition(":")[0].strip()
    return re.sub(r"\d+", "N", first)[:_LONGEST] or "no reason given"


#: Dimensions and the keys of a rollout in each.
DIMENSIONS: Mapping[str, Callable[[RolloutEvent], Iterable[str]]] = {
    "domain": lambda event: (event.domain,),
    "dataset": lambda event: (event.dataset or "none",),
    "operator": lambda event: event.operators,
    "shape": lambda event: (event.shape or "no operator",),
    "lint": lambda event: event.lint,
    "failure": lambda event: filter(None, (_failure(event),)),
}
