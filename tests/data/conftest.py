"""The folders of raw files that the claims about processing are tested on."""

from pathlib import Path

import pytest
from helpers.benchmarks import MIXED, all_benchmarks


@pytest.fixture(scope="module", params=["invented", "published"])
def raw(request: pytest.FixtureRequest, samples: Path) -> Path:
    """The invented samples, and once more the real ones, where this machine has them."""
    return all_benchmarks(MIXED) if request.param == "published" else samples
