"""A trained policy as a solver of Inspect: its users evaluate the policy on tasks of their own.

    inspect eval task.py --model none --solver llm_as_judge/workflow_policy -S config=config/training.yaml

A sample's metadata may hold ``domain``, ``context``, ``entry_point`` and ``public_tests``; without ``domain`` the
solver's argument counts. The answer is the model's output; the workflow, its operator calls and the cost stand in the
sample's transcript. The extra ``inspect`` installs Inspect.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import asdict
from typing import Any

from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.integrations.background import Background, shared
from llm_as_judge.solver import Draw, Solution
from llm_as_judge.solver import Solver as Policy
from llm_as_judge.types import Domain

try:
    from inspect_ai.log import transcript
    from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, ModelOutput, ModelUsage
    from inspect_ai.solver import Generate, Solver, TaskState, solver
except ImportError as error:
    raise ConfigError(f"Inspect is an extra: python -m pip install 'llm-as-judge[inspect]' ({error})") from error


class _Opened:
    """A policy that stays open, in an event loop of its own, until the process ends: Inspect tells no solver when an
    evaluation is over. The processes that it started end with this one.
    """

    def __init__(self, policy: Policy) -> None:
        self._background = Background("workflow policy")
        self._background.submit(policy.__aenter__()).result()
        self._policy = policy

    def solve(self, *arguments: Any, **options: Any) -> Awaitable[Solution]:
        return asyncio.wrap_future(self._background.submit(self._policy.solve(*arguments, **options)))


@shared
def _opened(config: str, checkpoint: str | None, overrides: tuple[str, ...]) -> _Opened:
    """The same policy for all samples, the first of which come together."""
    return _Opened(Policy(config, overrides, checkpoint=checkpoint))


@solver
def workflow_policy(
    config: str = "config/embedded.yaml",
    checkpoint: str | None = None,
    overrides: list[str] | str | None = None,
    domain: Domain = "math",
    fallback: bool = False,
) -> Solver:
    """The policy writes a workflow for each sample, which is run.

    Args:
        config: YAML file of settings.
        checkpoint: folder of an adapter; None is the newest of the configured run.
        overrides: ``name=value`` settings.
        domain: of samples whose metadata name none: math, code or qa.
        fallback: where a workflow fails, the executor answers directly.
    """
    changes = (overrides,) if isinstance(overrides, str) else tuple(overrides or ())

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        policy = await asyncio.to_thread(_opened, config, checkpoint, changes)
        told = state.metadata
        try:
            solution = await policy.solve(
                state.user_prompt.text,
                told.get("domain", domain),
                context=told.get("context") or "",
                entry_point=told.get("entry_point"),
                public_tests=told.get("public_tests") or (),
                draw=Draw(seed=state.epoch - 1),
                fallback=fallback,
            )
        except DataError as error:  # too long: the sample's score, not the evaluation's end
            state.output = ModelOutput(model=f"workflow-policy/{config}", error=str(error))
            state.completed = True
            return state
        execution = solution.execution
        transcript().info(
            {
                "workflow": solution.workflow,
                "outcome": execution.outcome,
                "error": execution.error,
                "fallback": solution.fallback,
                "cost": execution.cost,
                "calls": json.loads(json.dumps([asdict(call) for call in execution.calls], default=str)),
            },
            source="workflow_policy",
        )
        message = ChatMessageAssistant(content=solution.answer or "", model="workflow-policy", source="generate")
        exchanges = [exchange for call in execution.calls for exchange in call.exchanges]
        read = solution.prompt_tokens + sum(e.prompt_tokens for e in exchanges)
        written = solution.completion_tokens + sum(e.completion_tokens for e in exchanges)
        state.messages.append(message)
        state.output = ModelOutput(
            model="workflow-policy",
            choices=[ChatCompletionChoice(message=message, stop_reason="stop")],
            usage=ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written),
            error=None if execution.outcome == "finished" else f"{execution.outcome}: {execution.error}",
        )
        return state

    return solve
