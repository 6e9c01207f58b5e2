"""A real browser, and what it complains of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


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


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives it: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def browsing(chromium: Any) -> Iterator[Browsing]:
    page = chromium.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(30_000)
    found = Browsing(page)
    page.on("console", lambda message: found.said.append(f"{message.type}: {message.text} {message.location['url']}"))
    page.on("pageerror", lambda error: found.said.append(f"error: {error}"))
    page.on("request", lambda request: found.asked.append(request.url))
    yield found
    page.close()
