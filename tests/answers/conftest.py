"""Where the real benchmark samples are, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture
def judge_pairs() -> Path:
    folder = DATA / "judge_pairs"
    if not folder.is_dir():
        pytest.skip(f"no benchmark samples at {folder}")
    return folder


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
