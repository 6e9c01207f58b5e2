"""One sandbox on one event loop for the whole folder."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from helpers.workflows import QUESTION
from running import Run, Script, Wait

from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.config.schema import SandboxConfig, WorkflowConfig
from llm_as_judge.operators.base import no_enhancement
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.types import Execution, Question
from llm_as_judge.workflow.run import WorkflowRunner


@pytest.fixture(scope="session")
def wait() -> Iterator[Wait]:
    """Runs a coroutine on the loop of the sandbox."""
    loop = asyncio.new_event_loop()
    yield loop.run_until_complete
    loop.close()


@pytest.fixture(scope="session")
def box(wait: Wait) -> Iterator[Sandbox]:
    sandbox = Sandbox(SandboxConfig())
    yield sandbox
    wait(sandbox.aclose())


@pytest.fixture(scope="session")
def run(wait: Wait, box: Sandbox) -> Run:
    """Runs a workflow's text, without lint if it is not ``linted``; ``settings`` are of the ``workflow`` section."""

    def run_text(
        source: str,
        question: Question = QUESTION,
        llm: Any = None,
        *,
        executor: EndpointConfig | None = None,
        enhance: Callable[[str, str], str] = no_enhancement,
        prompt: str = "",
        seed: int | None = None,
        linted: bool = True,
        **settings: Any,
    ) -> Execution:
        config, executor = WorkflowConfig(**settings), executor or EndpointConfig()
        runner = WorkflowRunner(llm or Script(), box, config, executor, enhance).beside(prompt)
        if not linted:
            read = runner._read
            runner._read = lambda *given, **named: replace(read(*given, **named), findings=())  # type: ignore[assignment]
        execution: Execution = wait(runner.run(source, question, seed))
        return execution

    return run_text
