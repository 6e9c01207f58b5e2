"""Settings of an embedded run with an endpoint that knows the answers, judged by rules: quick and reproducible."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.finished import EMBEDDED
from helpers.knowing import Knowing, Loads, knowing

from llm_as_judge.config.loading import load_config


@pytest.fixture
def executor() -> Iterator[Knowing]:
    with knowing() as served:
        yield served


@pytest.fixture
def overrides(executor: Knowing) -> list[str]:
    """For code that loads the configuration itself."""
    return [
        "executor.provider=openai", f"executor.base_url={executor.url}", "executor.max_retries=0", "judge.mode=rules",
        "domain_ratios={math: 1, code: 0, qa: 0}",
    ]  # fmt: skip


@pytest.fixture
def config(overrides: list[str], here: Path) -> Loads:
    return lambda *changes: load_config(EMBEDDED, [*overrides, *changes])
