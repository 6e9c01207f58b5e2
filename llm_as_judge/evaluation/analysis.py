"""Statistics of a run's log: ``analyze_log`` for ``analyze``, ``read_story`` for the report.

Figures are by domain, dataset, operator, shape, lint code and failure, and over time. A log is read once. Rollouts are
kept by step without their texts, so that steps which a resumed run repeats count once.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from llm_as_judge.evaluation.intervals import mean, mean_known
from llm_as_judge.events import RolloutEvent, RunEvent, StepReport
from llm_as_judge.files import read_json
from llm_as_judge.runlog import LogReader
from llm_as_judge.types import Domain, in_order
from llm_as_judge.workflow.lint.codes import CODES

_PARTS = 10  # of a run, over time
_LONGEST = 80  # characters of a failure
#: Part of the run that counts as its beginning, and as its end.
ENDS = 0.1
_SHOWN = 5  # of the best and of the worst rollouts


@dataclass(frozen=True, slots=True)
class Line:
    """Statistics of some rollouts; shares in [0, 1], NaN for means over no values."""

    rollouts: int
    accuracy: float  # of scored rollouts
    valid_rate: float  # without infrastructure faults
    reward: float  # mean over scored rollouts
    executor_tokens: float  # mean
    cost: float  # sum
    unscored: int
    executors: Mapping[str, tuple[int, int]]  # calls and tokens of each


@dataclass(frozen=True, slots=True)
class Part:
    """Statistics of consecutive steps; ``seconds`` is the mean per step."""

    first: int
    last: int
    line: Line
    zero_variance: float  # share of groups without contrast
    kl: float
    entropy: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Analysis:
    log: Path
    total: Line
    by: Mapping[str, Mapping[str, Line]]  # dimension, key; the most frequent first
    time: Sequence[Part]


def analyze_log(path: Path) -> Analysis:
    """Reads the whole log; unreadable lines are skipped."""
    reader, steps = LogReader(path), dict[int, list[RolloutEvent]]()
    for event in reader.new():
        if isinstance(event, (RolloutEvent, RunEvent)):
            steps = _added(steps, event)
    return _analysis(path, steps, reader.steps)


def _added(steps: dict[int, list[RolloutEvent]], event: RolloutEvent | RunEvent) -> dict[int, list[RolloutEvent]]:
    """Rollouts by step, without their texts; those of steps that a resumed run repeats are dropped."""
    if isinstance(event, RunEvent):
        return {step: own for step, own in steps.items() if step <= event.kept}
    light = msgspec.structs.replace(event, text="", workflow=None, calls=(), judged=(), reference=())
    steps.setdefault(event.step, []).append(light)
    return steps


def _analysis(path: Path, steps: Mapping[int, Sequence[RolloutEvent]], reports: Iterable[StepReport]) -> Analysis:
    rollouts = [rollout for own in steps.values() for rollout in own]
    by: dict[str, dict[str, Line]] = {}
    for dimension, keys in DIMENSIONS.items():
        groups: dict[str, list[RolloutEvent]] = {}
        for rollout in rollouts:
            for key in set(keys(rollout)):
                groups.setdefault(key, []).append(rollout)
        ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
        by[dimension] = {key: _line(own) for key, own in ranked}
    known, numbers = {report.step: report for report in reports}, sorted(steps)
    size = max(1, math.ceil(len(numbers) / _PARTS))
    parts = [numbers[start : start + size] for start in range(0, len(numbers), size)]
    return Analysis(path, _line(rollouts), by, [_part(part, steps, known) for part in parts])


def _part(numbers: Sequence[int], steps: Mapping[int, Sequence[RolloutEvent]], known: Mapping[int, StepReport]) -> Part:
    reports = [known[number] for number in numbers if number in known]
    groups = sum(report.groups for report in reports)
    return Part(
        first=numbers[0],
        last=numbers[-1],
        line=_line([rollout for number in numbers for rollout in steps[number]]),
        zero_variance=sum(report.skipped_groups for report in reports) / groups if groups else math.nan,
        kl=mean_known([report.kl for report in reports]),
        entropy=mean_known([report.entropy for report in reports]),
        seconds=mean_known([sum(report.seconds.values()) for report in reports]),
    )


def _line(rollouts: Sequence[RolloutEvent]) -> Line:
    scored = [rollout for rollout in rollouts if rollout.reward is not None]

    def of(name: str, place: int) -> int:
        return sum(rollout.executors.get(name, (0, 0))[place] for rollout in rollouts)

    return Line(
        rollouts=len(rollouts),
        accuracy=mean([rollout.correct is True for rollout in scored]),
        valid_rate=mean([rollout.outcome == "finished" for rollout in rollouts if rollout.outcome != "fault"]),
        reward=mean([rollout.reward or 0.0 for rollout in scored]),
        executor_tokens=mean([rollout.executor_tokens for rollout in rollouts]),
        cost=sum(rollout.cost for rollout in rollouts),
        unscored=len(rollouts) - len(scored),
        executors={name: (of(name, 0), of(name, 1)) for name in sorted({n for r in rollouts for n in r.executors})},
    )


class Shown(NamedTuple):
    reward: float
    rollout: RolloutEvent
    question: str


@dataclass(frozen=True, slots=True)
class Story:
    """``before`` and ``after`` count the shapes of the first and last steps, by domain. The rollouts in ``best`` and in
    ``worst`` differ in domain, shape or outcome. ``results`` is the run's results file; empty until its end.
    """

    log: LogReader
    costs: Sequence[float]  # of all replies up to each step, also of those from the cache
    before: Mapping[Domain, Counter[str]]
    after: Mapping[Domain, Counter[str]]
    best: Sequence[Shown]
    worst: Sequence[Shown]
    analysis: Analysis
    results: Mapping[str, Any]


def read_story(log: Path, results: Path) -> Story:
    """``results`` is the run's results file; results of another run are ignored."""
    reader, steps = LogReader(log), dict[int, list[RolloutEvent]]()
    best, worst = dict[tuple[str, ...], Shown](), dict[tuple[str, ...], Shown]()
    for found in reader.finished():
        if isinstance(found, RunEvent):
            steps = _added(steps, found)
            continue
        for rollout, _, prompt in found.members():
            steps = _added(steps, rollout)
            if rollout.reward is None:
                continue
            kind = (rollout.domain, rollout.shape, rollout.outcome)
            shown = Shown(rollout.reward, rollout, prompt.question or prompt.user)
            best[kind] = max(shown, best.get(kind, shown), key=lambda one: one.reward)
            worst[kind] = min(shown, worst.get(kind, shown), key=lambda one: one.reward)
    rollouts = [steps.get(step.step, []) for step in reader.steps]
    few = max(1, round(ENDS * len(rollouts)))
    saved = read_json(results)
    return Story(
        log=reader,
        costs=list(itertools.accumulate(sum(rollout.cost for rollout in own) for own in rollouts)),
        before=_shapes(rollouts[:few]),
        after=_shapes(rollouts[-few:]),
        best=sorted(best.values(), key=lambda one: -one.reward)[:_SHOWN],
        worst=sorted(worst.values(), key=lambda one: one.reward)[:_SHOWN],
        analysis=_analysis(log, steps, reader.steps),
        results=saved if saved.get("run_id") == reader.run.id else {},
    )


def _shapes(steps: Sequence[Sequence[RolloutEvent]]) -> dict[Domain, Counter[str]]:
    rollouts = [rollout for own in steps for rollout in own]
    there = in_order(r.domain for r in rollouts)
    counts = {d: Counter(r.shape or "no operator" for r in rollouts if r.domain == d) for d in there}
    return {domain: own for domain, own in counts.items() if own}


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
    "executor": lambda event: filter(None, event.executors),  # named ones
    "shape": lambda event: (event.shape or "no operator",),
    "lint": lambda event: event.lint,
    "failure": lambda event: filter(None, (_failure(event),)),
}
