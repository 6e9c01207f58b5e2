"""What a run tells while it goes on. A terminal, a log or nobody may listen; a run knows none of them."""

from __future__ import annotations

from typing import Protocol

from llm_as_judge.events import StepReport


class Progress(Protocol):
    def say(self, line: str) -> None:
        """Something that a person should read."""

    def step(self, report: StepReport, total: int) -> None:
        """A training step is finished."""

    def advance(self, what: str, done: int, total: int) -> None:
        """``done`` of ``total`` pieces of ``what``."""


class Silent:
    """Nobody listens."""

    def say(self, line: str) -> None: ...
    def step(self, report: StepReport, total: int) -> None: ...
    def advance(self, what: str, done: int, total: int) -> None: ...
