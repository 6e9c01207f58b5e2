"""A page of a real browser, and what it complains of."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Browsing:
    """A page, what its console said, and what it asked of whom."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def picture(self, name: str) -> None:
        """Keeps what is seen now where ``SCREENSHOTS`` names a folder."""
        if folder := os.environ.get("SCREENSHOTS"):
            self.page.screenshot(path=Path(folder, f"{name}.png"))
