"""A training run's event log summed up: by domain, dataset, operator, shape, lint code and failure, and over time.

One pass, with what is kept growing with steps and not with rollouts. A step that was done again after a resumption
counts once, as the later session did it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from llm_as_judge.evaluation.logged import LoggedRollout
from llm_as_judge.evaluation.metrics import number
from llm_as_judge.runlog import EventReader, step_in
from llm_as_judge.workflow.lint.codes import CODES
from llm_as_judge.workflow.structure import shape

#: What a rollout is told apart by.
DIMENSIONS = ("domain", "dataset", "operator", "shape", "lint", "failure")
_PARTS = 10  # of a run, over time
_LONGEST = 80  # characters of a failure


class RolloutLine(msgspec.Struct):
    """What is read of a rollout's event; the text only where an older log does not tell its shape."""

    step: int
    domain: str
    outcome: str
    text: msgspec.Raw
    correct: bool | None
    reward: float | None
    dataset: str = ""
    error: str = ""
    reason: str = ""
    shape: str | None = None
    executor_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    lint: list[str] = []
    operators: list[str] = []


@dataclass(frozen=True, slots=True)
class Line:
    """Of some rollouts; shares in [0, 1], means of nothing are NaN."""

    rollouts: int
    accuracy: float  # of scored ones
    valid_rate: float  # of those that were not our fault
    reward: float  # mean of scored ones
    executor_tokens: float  # mean
    cost: float  # sum
    unscored: int

    def as_json(self) -> dict[str, Any]:
        means = ("accuracy", "valid_rate", "reward", "executor_tokens")
        told = {name: number(getattr(self, name)) for name in means}
        return {"rollouts": self.rollouts, **told, "cost": self.cost, "unscored": self.unscored}


@dataclass(frozen=True, slots=True)
class Part:
    """Some steps in a row. ``zero_variance`` is the share of groups without contrast, ``seconds`` a step's mean."""

    first: int
    last: int
    line: Line
    zero_variance: float
    kl: float
    entropy: float
    seconds: float

    def as_json(self) -> dict[str, Any]:
        figures = ("zero_variance", "kl", "entropy", "seconds")
        own = {name: number(getattr(self, name)) for name in figures}
        return {"steps": [self.first, self.last], **self.line.as_json(), **own}


@dataclass(frozen=True, slots=True)
class Analysis:
    log: Path
    total: Line
    by: Mapping[str, Mapping[str, Line]]  # dimension, key; the most frequent first
    time: Sequence[Part]

    def as_json(self) -> dict[str, Any]:
        by = {dimension: {key: line.as_json() for key, line in lines.items()} for dimension, lines in self.by.items()}
        time = [part.as_json() for part in self.time]
        return {"log": str(self.log), "total": self.total.as_json(), "by": by, "time": time}


class _Sums:
    __slots__ = ("cost", "faults", "finished", "n", "reward", "right", "scored", "tokens")

    def __init__(self) -> None:
        self.n = self.scored = self.right = self.finished = self.faults = self.tokens = 0
        self.reward = self.cost = 0.0

    def add(self, rollout: RolloutLine | LoggedRollout) -> None:
        self.n += 1
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
        ours = self.n - self.faults
        return Line(
            self.n, _share(self.right, self.scored), _share(self.finished, ours), _share(self.reward, self.scored),
            _share(self.tokens, self.n), self.cost, self.n - self.scored,
        )  # fmt: skip


_Key = tuple[str, str]


class LogSums:
    """Sums by step, so that what a resumption threw away can be thrown away here."""

    def __init__(self) -> None:
        self.sums: dict[int, dict[_Key, _Sums]] = {}
        self.reports: dict[int, Mapping[str, Any]] = {}
        self._shapes: dict[bytes | str, str] = {}

    def add(self, event: RolloutLine | LoggedRollout | Mapping[str, Any]) -> None:
        if not isinstance(event, Mapping):
            sums = self.sums.setdefault(event.step, {})
            for key in self._keys(event):
                if key not in sums:
                    sums[key] = _Sums()
                sums[key].add(event)
        elif event["kind"] == "step":
            self.reports[event["step"]] = event
        elif event["kind"] == "run":
            kept = step_in(event.get("resumed_from"))
            self.sums = {step: sums for step, sums in self.sums.items() if step <= kept}
            self.reports = {step: report for step, report in self.reports.items() if step <= kept}

    def analysis(self, path: Path) -> Analysis:
        """Of what was added, from ``path``."""
        joined = _joined(self.sums.values())
        by: dict[str, dict[str, Line]] = {dimension: {} for dimension in DIMENSIONS}
        for (dimension, key), sums in sorted(joined.items(), key=lambda item: (-item[1].n, item[0])):
            if dimension:
                by[dimension][key] = sums.line()
        return Analysis(path, joined.get(("", ""), _Sums()).line(), by, _over_time(self))

    def _keys(self, event: RolloutLine | LoggedRollout) -> list[_Key]:
        keys = [("", ""), ("domain", event.domain), ("dataset", event.dataset or "none"), ("shape", self._shape(event))]
        keys += [("operator", name) for name in set(event.operators)]
        keys += [("lint", code) for code in set(event.lint)]
        failure = failure_of(event)
        return [*keys, ("failure", failure)] if failure else keys

    def _shape(self, event: RolloutLine | LoggedRollout) -> str:
        found = event.shape
        if found is None:
            text = event.text if isinstance(event.text, str) else bytes(event.text)
            if text not in self._shapes:
                self._shapes[text] = shape(text if isinstance(text, str) else msgspec.json.decode(text, type=str))
            found = self._shapes[text]
        return found or "no operator"


def failure_of(event: RolloutLine | LoggedRollout) -> str:
    """What went wrong in a rollout, in few words; empty for a right answer."""
    if event.correct is None:
        return f"unscored: {_head(event.reason or event.error)}"
    if event.outcome == "invalid":
        fatal = next((code for code in event.lint if CODES.get(code, ("", False))[1]), "")
        return f"invalid: {fatal} {CODES[fatal][0]}" if fatal else f"invalid: {_head(event.error)}"
    if event.outcome != "finished":
        return f"{event.outcome}: {_head(event.error)}"
    return "" if event.correct else "wrong answer"


def _head(text: str) -> str:
    """The kind of an error, without what differs from case to case."""
    first = text.partition("\n")[0].partition(":")[0].strip()
    return re.sub(r"\d+", "N", first)[:_LONGEST] or "no reason told"


def analyze_log(path: Path) -> Analysis:
    """Reads ``path`` once, line by line; a torn line is left out."""
    log = LogSums()
    for event in EventReader(path, {"rollout": RolloutLine}, skip=("prompt", "layers", "audit", "usage")).new():
        log.add(event)
    return log.analysis(path)


def _joined(parts: Iterable[Mapping[_Key, _Sums]]) -> dict[_Key, _Sums]:
    total: dict[_Key, _Sums] = {}
    for part in parts:
        for key, sums in part.items():
            if key not in total:
                total[key] = _Sums()
            total[key].join(sums)
    return total


def _over_time(log: LogSums) -> list[Part]:
    steps = sorted(log.sums)
    size = max(1, math.ceil(len(steps) / _PARTS))
    return [_part(steps[i : i + size], log) for i in range(0, len(steps), size)]


def _part(steps: Sequence[int], log: LogSums) -> Part:
    own = _joined([{("", ""): log.sums[step]["", ""]} for step in steps])["", ""]
    reports = [log.reports[step] for step in steps if step in log.reports]
    groups, skipped = (sum(report[name] for report in reports) for name in ("groups", "skipped_groups"))
    return Part(
        first=steps[0],
        last=steps[-1],
        line=own.line(),
        zero_variance=_share(skipped, groups),
        kl=_mean([report.get("kl") for report in reports]),
        entropy=_mean([report.get("entropy") for report in reports]),
        seconds=_mean([sum(report["seconds"].values()) for report in reports]),
    )


def _share(part: float, whole: int) -> float:
    return part / whole if whole else math.nan


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else math.nan
