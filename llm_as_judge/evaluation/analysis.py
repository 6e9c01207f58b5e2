"""Rollouts of a run by domain, dataset, operator, shape, lint code and failure, and over time.

A log of any length is read once. Only sums are kept, by step, so that steps which a resumed run repeats count once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llm_as_judge.evaluation.metrics import mean_known
from llm_as_judge.events import RolloutEvent, RunEvent, StepReport
from llm_as_judge.runlog import LogReader, json_data
from llm_as_judge.workflow.lint.codes import CODES

DIMENSIONS = ("domain", "dataset", "operator", "shape", "lint", "failure")
_PARTS = 10  # of a run, over time
_LONGEST = 80  # characters of a failure


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


@dataclass(slots=True)
class _Sums:
    rollouts: int = 0
    scored: int = 0
    right: int = 0
    finished: int = 0
    faults: int = 0
    tokens: int = 0
    reward: float = 0.0
    cost: float = 0.0

    def add(self, rollout: RolloutEvent) -> None:
        self.rollouts += 1
        self.tokens += rollout.executor_tokens
        self.cost += rollout.cost
        self.finished += rollout.outcome == "finished"
        self.faults += rollout.outcome == "fault"
        if rollout.reward is not None:
            self.scored += 1
            self.right += rollout.correct is True
            self.reward += rollout.reward

    def join(self, other: _Sums) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def line(self) -> Line:
        return Line(
            rollouts=self.rollouts,
            accuracy=_share(self.right, self.scored),
            valid_rate=_share(self.finished, self.rollouts - self.faults),
            reward=_share(self.reward, self.scored),
            executor_tokens=_share(self.tokens, self.rollouts),
            cost=self.cost,
            unscored=self.rollouts - self.scored,
        )


_Key = tuple[str, str]


@dataclass
class LogSums:
    """Sums of rollouts by step, dimension and key."""

    _steps: dict[int, dict[_Key, _Sums]] = field(default_factory=dict)

    def add(self, event: RolloutEvent | RunEvent) -> None:
        if isinstance(event, RunEvent):
            self._steps = {step: sums for step, sums in self._steps.items() if step <= event.kept}
            return
        sums = self._steps.setdefault(event.step, {})
        for key in _keys(event):
            sums.setdefault(key, _Sums()).add(event)

    def analysis(self, path: Path, reports: Iterable[StepReport]) -> Analysis:
        joined = _joined(self._steps.values())
        by: dict[str, dict[str, Line]] = {dimension: {} for dimension in DIMENSIONS}
        for (dimension, key), sums in sorted(joined.items(), key=lambda item: (-item[1].rollouts, item[0])):
            if dimension:
                by[dimension][key] = sums.line()
        return Analysis(path, joined.get(("", ""), _Sums()).line(), by, self._over_time(reports))

    def _over_time(self, reports: Iterable[StepReport]) -> list[Part]:
        known = {report.step: report for report in reports}
        steps = sorted(self._steps)
        size = max(1, math.ceil(len(steps) / _PARTS))
        parts = []
        for start in range(0, len(steps), size):
            own = steps[start : start + size]
            sums = _joined({("", ""): self._steps[step]["", ""]} for step in own)["", ""]
            part = [known[step] for step in own if step in known]
            parts.append(
                Part(
                    first=own[0],
                    last=own[-1],
                    line=sums.line(),
                    zero_variance=_share(sum(r.skipped_groups for r in part), sum(r.groups for r in part)),
                    kl=mean_known([r.kl for r in part]),
                    entropy=mean_known([r.entropy for r in part]),
                    seconds=mean_known([sum(r.seconds.values()) for r in part]),
                )
            )
        return parts


def analyze_log(path: Path) -> Analysis:
    """Reads the whole log; unreadable lines are skipped."""
    reader, sums = LogReader(path), LogSums()
    for event in reader.new():
        if isinstance(event, (RolloutEvent, RunEvent)):
            sums.add(event)
    return sums.analysis(path, reader.steps)


def failure_of(event: RolloutEvent) -> str:
    """What went wrong in a rollout, in a few words; empty for a correct answer."""
    if event.correct is None:
        return f"unscored: {_head(event.reason or event.error)}"
    if event.outcome == "invalid":
        fatal = next((code for code in event.lint if CODES.get(code, ("", False))[1]), "")
        return f"invalid: {fatal} {CODES[fatal][0]}" if fatal else f"invalid: {_head(event.error)}"
    if event.outcome != "finished":
        return f"{event.outcome}: {_head(event.error)}"
    return "" if event.correct else "wrong answer"


def _keys(event: RolloutEvent) -> list[_Key]:
    keys = [("", ""), ("domain", event.domain), ("dataset", event.dataset or "none")]
    keys.append(("shape", event.shape or "no operator"))
    keys += [("operator", name) for name in set(event.operators)]
    keys += [("lint", code) for code in set(event.lint)]
    failure = failure_of(event)
    return [*keys, ("failure", failure)] if failure else keys


def _head(text: str) -> str:
    """The kind of an error, without details that differ from case to case."""
    first = text.partition("\n")[0].partition(":")[0].strip()
    return re.sub(r"\d+", "N", first)[:_LONGEST] or "no reason given"


def _joined(parts: Iterable[Mapping[_Key, _Sums]]) -> dict[_Key, _Sums]:
    total: dict[_Key, _Sums] = {}
    for part in parts:
        for key, sums in part.items():
            total.setdefault(key, _Sums()).join(sums)
    return total


def _share(part: float, whole: int) -> float:
    return part / whole if whole else math.nan
