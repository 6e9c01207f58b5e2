"""A training run's rollouts as its event log tells them, a step at a time, while the run goes on or after it.

    reader = StepReader(Path("logs/nano/grpo_mixed.jsonl"))
    for found in reader.new():
        ...  # a ``Begun`` for each session, a ``LoggedStep`` for each whole step

What is kept does not grow with the rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from llm_as_judge.runlog import EventReader, step_in
from llm_as_judge.types import Exchange, OperatorCall

#: Prompts that wait for the step in which they are rolled out.
_PROMPTS = 5_000


class LoggedRollout(msgspec.Struct):
    """A rollout's event. Logs of older versions tell no calls, reference, seconds and exchanges with the judge."""

    time: float
    step: int
    problem: str
    domain: str
    outcome: str
    text: str
    correct: bool | None
    reward: float | None
    dataset: str = ""
    workflow: str | None = None
    answer: str | None = None
    error: str = ""
    tier: str = ""
    reason: str = ""
    shape: str | None = None
    finish_reason: str = ""
    lint: list[str] = []
    operators: list[str] = []
    calls: list[OperatorCall] = []
    judged: list[Exchange] = []
    terms: dict[str, float] = {}
    reference: list[str] = []
    advantage: float | None = None
    completion_tokens: int = 0
    executor_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    @property
    def source(self) -> str:
        """The workflow as it was run."""
        return self.text if self.workflow is None else self.workflow


Seen = Callable[[LoggedRollout | Mapping[str, Any]], None]


class LoggedPrompt(msgspec.Struct):
    """What the policy was asked: ``user`` whole, ``question`` the problem alone, where the log tells it."""

    problem: str
    user: str
    question: str = ""


@dataclass(frozen=True, slots=True)
class Begun:
    """A session of the run; steps after ``kept`` are done again."""

    run: str
    time: float  # Unix seconds
    kept: int
    settings: Mapping[str, Any]

    def named(self, section: str, leaf: str) -> str:
        """A setting as the log tells it; empty where it does not."""
        values = self.settings.get(section)
        return str(values.get(leaf, "")) if isinstance(values, Mapping) else ""


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """A step that is done. ``report`` is its event; ``system`` the prompt that all problems share."""

    step: int
    run: Begun
    rollouts: Sequence[LoggedRollout]
    report: Mapping[str, Any]
    prompts: Mapping[str, LoggedPrompt]  # by problem
    system: str


@dataclass
class StepReader:
    path: Path
    _events: EventReader[Any] = field(init=False)
    _prompts: dict[str, LoggedPrompt] = field(default_factory=dict)
    _pending: list[LoggedRollout] = field(default_factory=list)
    _system: str = ""
    _run: Begun = field(default_factory=lambda: Begun("", 0.0, 0, {}))

    def __post_init__(self) -> None:
        types = {"rollout": LoggedRollout, "prompt": LoggedPrompt}
        self._events = EventReader(self.path, types, skip=("usage", "audit", "buffer"))

    def new(self, seen: Seen = lambda event: None) -> Iterator[Begun | LoggedStep]:
        """What was written since the last call. ``seen`` is told of each single event but prompts."""
        for event in self._events.new():
            if not isinstance(event, LoggedPrompt):
                seen(event)
            if isinstance(event, LoggedRollout):
                self._pending.append(event)
            elif isinstance(event, LoggedPrompt):
                self._prompts.pop(event.problem, None)
                self._prompts[event.problem] = event
                if len(self._prompts) > _PROMPTS:
                    del self._prompts[next(iter(self._prompts))]
            elif event["kind"] == "layers":
                self._system = str(event.get("layer1") or "")
            elif event["kind"] == "run":
                self._pending.clear()
                kept = step_in(event.get("resumed_from"))
                self._run = Begun(str(event.get("id", "")), event["time"], kept, _settings(event))
                yield self._run
            elif event["kind"] == "step":
                step = event["step"]
                rollouts = [rollout for rollout in self._pending if rollout.step == step]
                self._pending = [rollout for rollout in self._pending if rollout.step > step]
                prompts = {r.problem: self._prompts[r.problem] for r in rollouts if r.problem in self._prompts}
                yield LoggedStep(step, self._run, rollouts, event, prompts, self._system)


def _settings(event: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(str(event.get("config") or ""))
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, Mapping) else {}
