"""``llm-as-judge view`` in a real browser, on a run that grows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.browser import Browsing
from helpers.run_logs import RIGHT_TO_LEFT, SCRIPT, add_step, begin, group, hostile_group

from llm_as_judge.runlog import EventLog

pytest.importorskip("inspect_ai", reason="Inspect is an extra: make peers installs it")

# What Inspect's own page asks for and does not need.
INSPECTS_OWN = "/api/flow?"


@contextmanager
def viewing(root: Path, log: Path) -> Iterator[str]:
    """The address of the command on ``log``, from its start to its Ctrl-C."""
    words = ["view", str(log), "--port", "0", "--every", "0.3", "--no-browser", "--config", "config/embedded.yaml"]
    command = [sys.executable, "-m", "llm_as_judge", *words]
    # Within a test of its own, Inspect tells no viewer of new logs.
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_VERSION"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=root, env=environment, text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"at (http://\S+);", process.stdout.readline())
            if found is None:
                raise AssertionError(process.communicate()[1])
            yield found[1]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0


@pytest.mark.slow
def test_a_growing_run_is_browsed(tmp_path: Path, root: Path, browsing: Browsing) -> None:
    page, path = browsing.page, tmp_path / "nano/mine.jsonl"
    with EventLog(path) as log:
        begin(log)
        for step in (1, 2):
            add_step(log, step, [group("p1", True, False, None)])
        with viewing(root, path) as address:
            page.goto(address)
            page.wait_for_selector("text=step-0001")
            assert page.query_selector("text=step-0003") is None
            add_step(log, 3, [hostile_group()])
            page.wait_for_selector("text=step-0003")
            browsing.picture("view_steps")

            page.click("text=step-0001")
            page.wait_for_selector("text=math/p1")
            browsing.picture("view_rollouts")
            page.click("text=math/p1 >> nth=0")
            for seen in ("Question math/p1?", "correctness", "9.25", "AnswerGenerate", "class Workflow"):
                page.wait_for_selector(f"text={seen}")
            page.mouse.move(700, 700)
            for seen in ("Asked: Question math/p1?", "Reply to math/p1", "decided by rules"):
                scroll_to(browsing, seen)
            browsing.picture("view_rollout")

            page.goto(address)
            page.click("text=step-0003")
            page.click("text=hostile >> nth=0")
            page.mouse.move(700, 700)
            for seen in ("Problem", "# Workflow", "Reply"):
                scroll_to(browsing, f"{seen} {SCRIPT}")
                browsing.picture(f"view_hostile_{seen.strip('# ')}")
            shown = page.inner_text("body")
            assert RIGHT_TO_LEFT not in shown and "NUL[" in shown
            assert page.title() != "owned" and page.evaluate("document.querySelector('img[src=x]')") is None
            everything = "\n".join(browsing.said)
            assert not [line for line in browsing.said if "error" in line and INSPECTS_OWN not in line], everything
            hosts = {url.split("/")[2] for url in browsing.asked if url.startswith("http")}
            assert hosts == {address.removeprefix("http://")}


def scroll_to(browsing: Browsing, text: str) -> None:
    """Turns the wheel until ``text`` is seen; the page draws only what is near the window."""
    for _ in range(40):
        if browsing.page.get_by_text(text).first.is_visible():
            return
        browsing.page.mouse.wheel(0, 300)
        browsing.page.wait_for_timeout(100)
    raise AssertionError(f"{text!r} is nowhere in\n{browsing.page.inner_text('body')}")
