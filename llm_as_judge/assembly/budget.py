"""The budget of a run over all its sessions: cost, tokens and hours."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from llm_as_judge.config.schema import BudgetConfig
from llm_as_judge.llm.client import Usage
from llm_as_judge.runlog import LogReader


def usage_of(log: Path) -> dict[str, Usage]:
    """Usage of each model in all sessions of a run; an absent log counts as empty."""
    return _usages(LogReader.read(log))


def added(one: Mapping[str, Usage], other: Mapping[str, Usage]) -> dict[str, Usage]:
    """Sums by role."""

    def add(a: Usage, b: Usage) -> Usage:
        return Usage(**{name: value + asdict(b)[name] for name, value in asdict(a).items()})

    return {role: add(one.get(role, Usage()), other.get(role, Usage())) for role in {**one, **other}}


class Budget:
    """Checks the limits; ``log`` is read once for earlier sessions, ``usage`` counts this one."""

    def __init__(self, config: BudgetConfig, log: Path, usage: Callable[[], Mapping[str, Usage]]) -> None:
        self._config, self._usage = config, usage
        earlier = LogReader.read(log)
        self._earlier, self._seconds = _usages(earlier), earlier.seconds
        self._began = time.monotonic()

    def spent(self) -> str:
        """The limit that is reached, with the cure; empty if none is."""
        models = added(self._earlier, self._usage()).values()
        limits = {
            "max_cost": (self._config.max_cost, sum(u.cost for u in models)),
            "max_tokens": (self._config.max_tokens, sum(u.prompt_tokens + u.completion_tokens for u in models)),
            "max_hours": (self._config.max_hours, (self._seconds + time.monotonic() - self._began) / 3600),
        }
        for name, (limit, value) in limits.items():
            if limit is not None and value >= limit:
                cure = f"continue with --resume --set budget.{name}=MORE"
                return f"budget.{name}={limit:g} is spent ({value:.4g}); {cure}"
        return ""


def _usages(log: LogReader) -> dict[str, Usage]:
    counts: dict[str, dict[str, Any]] = log.usage
    return {role: Usage(**own) for role, own in counts.items()}
