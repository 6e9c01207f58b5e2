"""The labelled pairs for the tests of this folder, and the figures that they measure."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.benchmarks import benchmark


@pytest.fixture
def judge_pairs() -> Path:
    return benchmark("judge_pairs")


REPORT: list[str] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Measured figures of the judge, also when every test passes."""
    if REPORT:
        terminalreporter.section("judge")
        for line in REPORT:
            terminalreporter.write_line(line)


@pytest.fixture
def report() -> list[str]:
    """Lines added here are shown after the run."""
    return REPORT
