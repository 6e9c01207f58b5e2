"""What a run may cost, over all its sessions, and what it has cost so far, from its log and its models' meters."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from llm_as_judge.config.schema import BudgetConfig
from llm_as_judge.llm.client import Usage
from llm_as_judge.runlog import read_events


def usage_of(log: Path) -> dict[str, Usage]:
    """What the models were asked in all sessions of a run, as far as its log tells: each counts from its start."""
    total, session = dict[str, Usage](), dict[str, Usage]()
    for event in read_events(log):
        if event["kind"] == "run":
            total, session = added(total, session), {}
        elif event["kind"] == "usage":
            session = {role: Usage(**u) for role, u in event.items() if isinstance(u, dict)}
    return added(total, session)


def seconds_of(log: Path) -> float:
    """How long all sessions of a run took, each from its start to the last event in its log."""
    total, began, last = 0.0, None, 0.0
    for event in read_events(log):
        if event["kind"] == "run":
            total += last - began if began is not None else 0.0
            began = event["time"]
        last = event["time"]
    return total + (last - began if began is not None else 0.0)


def added(one: Mapping[str, Usage], other: Mapping[str, Usage]) -> dict[str, Usage]:
    """The sums by role."""

    def add(a: Usage, b: Usage) -> Usage:
        return Usage(**{name: value + asdict(b)[name] for name, value in asdict(a).items()})

    return {role: add(one.get(role, Usage()), other.get(role, Usage())) for role in {**one, **other}}


class Budget:
    """``log`` is read once, for what earlier sessions took; ``usage`` is of this one."""

    def __init__(self, config: BudgetConfig, log: Path, usage: Callable[[], Mapping[str, Usage]]) -> None:
        self._config, self._usage = config, usage
        self._earlier, self._seconds = usage_of(log), seconds_of(log)
        self._began = time.monotonic()

    def spent(self) -> str:
        """Which limit is reached, with the cure; empty where none is."""
        models = added(self._earlier, self._usage()).values()
        taken = {
            "max_cost": (self._config.max_cost, sum(u.cost for u in models)),
            "max_tokens": (self._config.max_tokens, sum(u.prompt_tokens + u.completion_tokens for u in models)),
            "max_hours": (self._config.max_hours, (self._seconds + time.monotonic() - self._began) / 3600),
        }
        for name, (limit, value) in taken.items():
            if limit is not None and value >= limit:
                return f"budget.{name}={limit:g} is spent ({value:.4g}); go on with --resume --set budget.{name}=MORE"
        return ""
