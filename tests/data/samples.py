"""Where the real benchmark samples lie, and a stop with a message where they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "data"


def sample(name: str = ".") -> Path:
    path = SAMPLES / name
    if not path.exists():
        pytest.skip(f"no benchmark samples at {path}: they are not part of the repository")
    return path
