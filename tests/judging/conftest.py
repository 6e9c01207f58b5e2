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
