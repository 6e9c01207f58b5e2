"""Inspect evaluates the policy: as a solver of its own, and as a model behind the endpoint."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

inspect_ai = pytest.importorskip("inspect_ai", reason="Inspect is a peer: make peers installs it")

from inspect_ai import Task  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.log import resolve_sample_attachments  # noqa: E402
from inspect_ai.scorer import exact  # noqa: E402

from llm_as_judge.commands.serve import ServeOptions, Serving, run_server  # noqa: E402
from llm_as_judge.config.loading import load_config  # noqa: E402
from llm_as_judge.integrations.inspect_ai import workflow_policy  # noqa: E402

APPLES = "Tom has {} apples. He buys 4 more. How many apples does Tom have now?"


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"executor.base_url=http://127.0.0.1:{s.getsockname()[1]}/v1"


def task(**more: Any) -> Task:
    """Two that the policy gets right at temperature 0 and one that nobody does."""
    samples = [Sample(input=APPLES.format(n), target=str(n + 4)) for n in (3, 5)]
    code = {"domain": "code", "entry_point": "f"}
    wrong = Sample(input="Return x plus 3.", target="no such answer", metadata=code)
    return Task(dataset=[*samples, wrong], scorer=exact(), **more)


def evaluated(model: str, **more: Any) -> Any:
    (log,) = inspect_ai.eval(task(**more), model=model, display="none", log_dir="logs", log_samples=True)
    assert log.status == "success", log.error
    return log


def test_the_policy_as_a_solver(executor: str) -> None:
    changes = [executor, "generation.eval_temperature=0"]
    log = evaluated("none", solver=workflow_policy(overrides=changes))
    assert [sample.scores["exact"].value for sample in log.samples] == ["C", "C", "I"]
    told, _, code = (_told(sample) for sample in log.samples)
    assert "class Workflow" in told["workflow"] and told["outcome"] == "finished"
    assert told["calls"][0]["exchanges"][0]["prompt"]
    assert "entry_point" in code["workflow"]
    assert log.samples[0].output.usage.total_tokens > 300


def _told(sample: Any) -> Any:
    (told,) = [event.data for event in resolve_sample_attachments(sample, "full").events if event.event == "info"]
    return told


@pytest.fixture
def address(executor: str) -> Iterator[str]:
    """``serve`` in a thread of this process."""
    ready, served, loop = threading.Event(), list[Serving](), asyncio.new_event_loop()

    def told(serving: Serving) -> None:
        served.append(serving)
        ready.set()

    config = load_config("config/embedded.yaml", [executor, "generation.eval_temperature=0"])
    task = loop.create_task(run_server(config, "127.0.0.1", 0, checkpoint=None, options=ServeOptions(), ready=told))
    thread = threading.Thread(target=loop.run_until_complete, args=(asyncio.gather(task, return_exceptions=True),))
    thread.start()
    assert ready.wait(300)
    yield served[0].base_url
    loop.call_soon_threadsafe(task.cancel)
    thread.join(120)


def test_the_policy_as_a_model(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOWS_BASE_URL", address)
    monkeypatch.setenv("WORKFLOWS_API_KEY", "sk-none")
    log = evaluated("openai-api/workflows/nano")
    assert [sample.scores["exact"].value for sample in log.samples] == ["C", "C", "I"]
    thoughts = [part for part in log.samples[0].output.message.content if getattr(part, "type", "") == "reasoning"]
    assert "class Workflow" in thoughts[0].reasoning
