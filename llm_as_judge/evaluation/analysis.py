"""Statistics of a run's log: ``analyze_log`` for ``analyze``, ``read_story`` for the report.

Figures are by domain, dataset, operator, shape, lint code and failure, and over time. A log is read once. Rollouts are
kept by step without their texts, so that steps which a resumed run repeats count once.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from llm_as_judge.evaluation.intervals import mean, mean_known
from llm_as_judge.events import Contrast, RolloutEvent, RunEvent, StepReport
from llm_as_judge.files import read_json
from llm_as_judge.runlog import LogReader, bare
from llm_as_judge.types import Domain, Rollout, in_order
from llm_as_judge.workflow.lint.codes import meaning

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
    contrast: Contrast
    kl: float
    entropy: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Analysis:
    log: Path
    total: Line
    contrast: Contrast
    by: Mapping[str, Mapping[str, Line]]  # dimension, key; the most frequent first
    time: Sequence[Part]


def analyze_log(path: Path) -> Analysis:
    """Read the whole log; unreadable lines are skipped."""
    reader, steps = LogReader(path), dict[int, list[Rollout]]()
    for event in reader.new():
        if isinstance(event, (RolloutEvent, RunEvent)):
            steps = _added(steps, event)
    return _analysis(path, steps, reader.steps)


def _added(steps: dict[int, list[Rollout]], event: RolloutEvent | RunEvent) -> dict[int, list[Rollout]]:
    """Return rollouts by step, without their texts; those of steps that a resumed run repeats are dropped."""
    if isinstance(event, RunEvent):
        return {step: own for step, own in steps.items() if step <= event.kept}
    light = replace(bare(event.rollout), workflow="", completion=replace(event.rollout.completion, text=""))
    steps.setdefault(event.step, []).append(light)
    return steps


def _analysis(path: Path, steps: Mapping[int, Sequence[Rollout]], reports: Sequence[StepReport]) -> Analysis:
    rollouts = [rollout for own in steps.values() for rollout in own]
    by: dict[str, dict[str, Line]] = {}
    for dimension, keys in DIMENSIONS.items():
        groups: dict[str, list[Rollout]] = {}
        for rollout in rollouts:
            for key in set(keys(rollout)):
                groups.setdefault(key, []).append(rollout)
        ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
        by[dimension] = {key: _line(own) for key, own in ranked}
    known, numbers = {report.step: report for report in reports}, sorted(steps)
    size = max(1, math.ceil(len(numbers) / _PARTS))
    parts = [numbers[start : start + size] for start in range(0, len(numbers), size)]
    return Analysis(path, _line(rollouts), Contrast.of(reports), by, [_part(part, steps, known) for part in parts])


def _part(numbers: Sequence[int], steps: Mapping[int, Sequence[Rollout]], known: Mapping[int, StepReport]) -> Part:
    reports = [known[number] for number in numbers if number in known]
    return Part(
        first=numbers[0],
        last=numbers[-1],
        line=_line([rollout for number in numbers for rollout in steps[number]]),
        contrast=Contrast.of(reports),
        kl=mean_known([report.kl for report in reports]),
        entropy=mean_known([report.entropy for report in reports]),
        seconds=mean_known([sum(report.seconds.values()) for report in reports]),
    )


def _line(rollouts: Sequence[Rollout]) -> Line:
    scored = [rollout for rollout in rollouts if rollout.reward.total is not None]
    executors: dict[str, tuple[int, int]] = {}
    for call in (call for rollout in rollouts for call in rollout.calls):
        number, tokens = executors.get(call.executor, (0, 0))
        executors[call.executor] = number + 1, tokens + call.tokens
    return Line(
        rollouts=len(rollouts),
        accuracy=mean([rollout.verdict.correct is True for rollout in scored]),
        valid_rate=mean([rollout.valid for rollout in rollouts if rollout.execution.outcome != "fault"]),
        reward=mean([rollout.reward.total or 0.0 for rollout in scored]),
        executor_tokens=mean([rollout.tokens for rollout in rollouts]),
        cost=sum(rollout.cost for rollout in rollouts),
        unscored=len(rollouts) - len(scored),
        executors=dict(sorted(executors.items())),
    )


class Shown(NamedTuple):
    reward: float
    step: int
    rollout: Rollout
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
    """Read the story of a run; ``results`` is its results file, ignored if it is another run's."""
    reader, steps = LogReader(log), dict[int, list[Rollout]]()
    best, worst = dict[tuple[str, ...], Shown](), dict[tuple[str, ...], Shown]()
    for found in reader.finished():
        if isinstance(found, RunEvent):
            steps = _added(steps, found)
            best, worst = ({kind: one for kind, one in own.items() if one.step <= found.kept} for own in (best, worst))
            continue
        for event, _, prompt in found.members():
            steps, rollout = _added(steps, event), event.rollout
            if (reward := rollout.reward.total) is None:
                continue
            kind = (rollout.problem.question.domain, rollout.execution.shape, rollout.execution.outcome)
            shown = Shown(reward, event.step, rollout, prompt.question or prompt.user)
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


def _shapes(steps: Sequence[Sequence[Rollout]]) -> dict[Domain, Counter[str]]:
    counts: dict[Domain, Counter[str]] = {}
    for rollout in (rollout for own in steps for rollout in own):
        counts.setdefault(rollout.problem.question.domain, Counter())[rollout.execution.shape or "no operator"] += 1
    return {domain: counts[domain] for domain in in_order(counts)}


def first_fatal(rollout: Rollout) -> str:
    """Return the first fatal finding of lint with its meaning; empty without one."""
    return next((meaning(finding.code) for finding in rollout.execution.findings if finding.fatal), "")


def _failure(rollout: Rollout) -> str:
    """Name the kind of failure of a rollout; empty for a correct answer."""
    if rollout.verdict.correct is None:
        return f"unscored: {_head(rollout.trouble)}"
    if not rollout.valid:
        return f"{rollout.execution.outcome}: {first_fatal(rollout) or _head(rollout.execution.error)}"
    return "" if rollout.verdict.correct else "wrong answer"


def _head(text: str) -> str:
    """Name the kind of an error, without details that differ from case to case."""
    first = text.partition("\n")[0].partition(":")[0].strip()
    return re.sub(r"\d+", "N", first)[:_LONGEST] or "no reason given"


#: Dimensions and the keys of a rollout in each.
DIMENSIONS: Mapping[str, Callable[[Rollout], Iterable[str]]] = {
    "domain": lambda rollout: (rollout.problem.question.domain,),
    "dataset": lambda rollout: (rollout.problem.question.dataset or "none",),
    "operator": lambda rollout: [call.name for call in rollout.execution.calls],
    "executor": lambda rollout: [call.executor for call in rollout.calls if call.executor],  # named ones
    "shape": lambda rollout: (rollout.execution.shape or "no operator",),
    "lint": lambda rollout: [finding.code for finding in rollout.execution.findings],
    "failure": lambda rollout: filter(None, (_failure(rollout),)),
}
