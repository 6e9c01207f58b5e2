"""Shared by all tests: one thread, no network of Hugging Face, the repository's root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before torch is imported anywhere: tests run side by side with other work, and the models are tiny.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return Path(__file__).parents[1]
