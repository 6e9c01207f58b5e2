"""The command line, run in this process, and a workflow for it."""

import json
from typing import Any

import pytest

from helpers.workflows import workflow
from llm_as_judge.assembly.progress import Silent
from llm_as_judge.commands.app import main


class CommandLine:
    """``cli("plan", "--gpus", "1x80")``; the fixture ``cli`` makes one."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured
        self.err = ""  # of the last command

    def __call__(self, *words: object, status: int = 0) -> str:
        """Standard output of a command that ends with ``status``."""
        self._captured.readouterr()
        ended = main([str(word) for word in words])
        out, self.err = self._captured.readouterr()
        assert ended == status, f"exit status {ended} of {words}\n{out}{self.err}"
        return out

    def json(self, *words: object, status: int = 0) -> Any:
        return json.loads(self(*words, "--json", status=status))

    def refused(self, *words: object) -> str:
        """The one error message of a command that ends with exit status 2."""
        self(*words, status=2)
        assert self.err.count("error: ") == 1 and "Traceback" not in self.err, self.err
        return self.err


class Said(Silent):
    """Progress of a command, kept."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.done: list[tuple[int, int]] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def advance(self, what: str, done: int, total: int) -> None:
        self.done.append((done, total))


SINGLE_CALL = workflow()
