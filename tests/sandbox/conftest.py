"""A sandbox that most tests of this folder share."""

from collections.abc import Iterator

import pytest
from shared_box import SharedBox, shared_box


@pytest.fixture(scope="session")
def box() -> Iterator[SharedBox]:
    with shared_box(cpu_seconds=2, wall_seconds=4) as box:
        yield box
