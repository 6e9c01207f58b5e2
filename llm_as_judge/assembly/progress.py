"""Progress reports of a run; the caller decides where they are shown."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from llm_as_judge.events import StepReport


class Progress(Protocol):
    def say(self, line: str) -> None:
        """Show a line to the user."""

    def step(self, report: "StepReport", total: int) -> None:
        """Show a finished training step."""

    def advance(self, what: str, done: int, total: int) -> None:
        """Show ``done`` of ``total`` units of the task ``what``."""


class Silent:
    """No-op progress reporter."""

    def say(self, line: str) -> None: ...
    def step(self, report: "StepReport", total: int) -> None: ...
    def advance(self, what: str, done: int, total: int) -> None: ...


SILENT = Silent()
