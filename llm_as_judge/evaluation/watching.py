"""What a running or finished training run looks like now, from its event log."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from llm_as_judge.runlog import EventReader, step_in
from llm_as_judge.types import DOMAINS

#: Steps that figures of the moment are means over.
RECENT = 10


@dataclass(frozen=True, slots=True)
class Look:
    """A run at one moment. Figures are means over the last ``RECENT`` steps; NaN and empty before there are any."""

    log: Path
    run: str
    step: int
    total: int  # 0: not known
    left_s: float  # seconds to the last step, as fast as of late
    reward: float
    rewards: Sequence[float]  # of every step
    accuracy: float
    domains: Mapping[str, float]
    valid_rate: float
    zero_variance: float
    unscored: int  # of the whole run
    tokens_per_s: float  # of executor and policy, while rollouts are made
    seconds: Mapping[str, float]  # of a step, by phase
    cost: float  # of the whole run
    validation: Mapping[str, float]  # the last one

    @property
    def done(self) -> bool:
        return 0 < self.total <= self.step


@dataclass
class Watched:
    """Follows a log; ``look`` reads what is new and tells how the run stands."""

    path: Path
    _reader: EventReader[Any] = field(init=False)
    _steps: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    _rollouts: int = 0  # of a step
    _run: str = ""
    _total: int = 0
    _spent: float = 0.0  # by earlier sessions
    _session: float = 0.0
    _validation: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reader = EventReader(self.path, skip=("rollout", "prompt", "layers", "audit"))

    def look(self) -> Look:
        for event in self._reader.new():
            self._add(event)
        steps = [self._steps[step] for step in sorted(self._steps)]
        recent = steps[-RECENT:]
        last = steps[-1]["step"] if steps else 0
        seconds = {
            phase: _mean([step["seconds"].get(phase, 0.0) for step in recent])
            for phase in (recent[-1]["seconds"] if recent else ())
        }
        times = [step["time"] for step in recent]
        # The median: a run that was resumed has a pause among its steps.
        pace = statistics.median(b - a for a, b in itertools.pairwise(times)) if len(times) > 1 else math.nan
        making = seconds.get("generate", 0.0) + seconds.get("execute", 0.0)
        counted = [step for step in recent if "rollouts" in step]  # logs of older versions do not tell
        tokens = _mean([(s["executor_tokens"] + s["completion_tokens"]) * s["rollouts"] for s in counted])
        return Look(
            log=self.path,
            run=self._run,
            step=last,
            total=self._total,
            left_s=max(0, self._total - last) * pace if self._total else math.nan,
            reward=_mean([step["reward_mean"] for step in recent]),
            rewards=[math.nan if s["reward_mean"] is None else s["reward_mean"] for s in steps],
            accuracy=_mean([step["accuracy"] for step in recent]),
            domains={d: _mean([step["domain_accuracy"].get(d) for step in recent]) for d in DOMAINS},
            valid_rate=_mean([step["valid_rate"] for step in recent]),
            zero_variance=_share(recent),
            unscored=sum(step["unscored"] for step in steps),
            tokens_per_s=tokens / making if making else math.nan,
            seconds=seconds,
            cost=self._spent + self._session,
            validation=dict(self._validation),
        )

    def _add(self, event: Mapping[str, Any]) -> None:
        match event["kind"]:
            case "run":
                self._run = str(event.get("id", ""))
                self._total = _max_steps(event.get("config"))
                kept = step_in(event.get("resumed_from"))
                if not kept:
                    self._spent, self._session = 0.0, 0.0
                self._steps = {step: report for step, report in self._steps.items() if step <= kept}
                self._spent, self._session = self._spent + self._session, 0.0
            case "step":
                self._steps[event["step"]] = event
            case "usage":  # counts from the session's start
                self._session = sum(u["cost"] for u in event.values() if isinstance(u, Mapping))
            case "eval":
                own = ("time", "kind")
                self._validation = {k: v for k, v in event.items() if k not in own and isinstance(v, (int, float))}


def _max_steps(config: object) -> int:
    try:
        return int(yaml.safe_load(str(config))["training"]["max_steps"])
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        return 0


def _share(steps: Sequence[Mapping[str, Any]]) -> float:
    groups = sum(step["groups"] for step in steps)
    return sum(step["skipped_groups"] for step in steps) / groups if groups else math.nan


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else math.nan
