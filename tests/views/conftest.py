"""A real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.browser import Browsing

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")  # its event loop excludes those of other tests
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
    page.set_default_timeout(60_000)
    found = Browsing(page)
    page.on("console", lambda message: found.said.append(f"{message.type}: {message.text} {message.location['url']}"))
    page.on("pageerror", lambda error: found.said.append(f"error: {error}"))
    page.on("request", lambda request: found.asked.append(request.url))
    yield found
    page.close()
