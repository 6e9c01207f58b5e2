"""Inspect evaluates the policy as a model behind ``serve``."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

inspect_ai = pytest.importorskip("inspect_ai", reason="Inspect is a peer: make peers installs it")

from inspect_ai import Task  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.scorer import exact  # noqa: E402

from llm_as_judge.commands.serve_endpoint import Endpoint, run_server  # noqa: E402
from llm_as_judge.config.loading import load_config  # noqa: E402
from llm_as_judge.solver import Solver  # noqa: E402

pytestmark = pytest.mark.slow
APPLES = "Tom has {} apples. He buys 4 more. How many apples does Tom have now?"


@pytest.fixture
def settings(address: str, here: Path) -> list[str]:
    return [f"executor.base_url={address}", "generation.eval_temperature=0"]


@pytest.fixture
def endpoint(settings: list[str]) -> Iterator[str]:
    """``serve`` in a thread of this process."""
    served, loop = queue.Queue[str](), asyncio.new_event_loop()
    solver = Solver(config=load_config("config/embedded.yaml", settings), untrained=True)
    task = loop.create_task(run_server(Endpoint(solver), "127.0.0.1", 0, served.put))
    thread = threading.Thread(target=loop.run_until_complete, args=(asyncio.gather(task, return_exceptions=True),))
    thread.start()
    yield served.get(timeout=300)
    loop.call_soon_threadsafe(task.cancel)
    thread.join(120)


def test_the_policy_as_a_model(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOWS_BASE_URL", endpoint)
    monkeypatch.setenv("WORKFLOWS_API_KEY", "sk-none")
    samples = [Sample(input=APPLES.format(n), target=str(n + 4)) for n in (3, 5)]
    task = Task(dataset=[*samples, Sample(input="Return x plus 3.", target="no such answer")], scorer=exact())
    (log,) = inspect_ai.eval(task, model="openai-api/workflows/nano", display="none", log_dir="logs", log_samples=True)
    assert log.status == "success", log.error
    assert [sample.scores["exact"].value for sample in log.samples] == ["C", "C", "I"]
    content = log.samples[0].output.message.content
    thoughts = [part for part in content if getattr(part, "type", "") == "reasoning"]
    assert "class Workflow" in thoughts[0].reasoning
