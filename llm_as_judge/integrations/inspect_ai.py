"""A trained policy as a solver of Inspect, to evaluate it on Inspect tasks.

    inspect eval task.py --model none --solver llm_as_judge/workflow_policy -S config=config/training.yaml

A sample's metadata may hold ``domain``, ``context``, ``entry_point`` and ``public_tests``; without ``domain`` the
solver's argument is used. The answer is the model's output; workflow, operator calls and cost are in the sample's
transcript. Needs the extra ``inspect``.
"""

import asyncio
import json
from concurrent.futures import Future
from dataclasses import asdict
from functools import cache

from inspect_ai.log import transcript
from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, ModelOutput, ModelUsage
from inspect_ai.solver import Generate, Solver, TaskState, solver

from llm_as_judge.errors import DataError
from llm_as_judge.rewards.functions import Background
from llm_as_judge.solver import Draw
from llm_as_judge.solver import Solver as Policy
from llm_as_judge.types import Domain


@cache
def _opened(config: str, checkpoint: str | None, overrides: tuple[str, ...]) -> tuple[Background, Future[Policy]]:
    """The policy of all samples, open until the process ends: Inspect does not tell solvers when it is done."""
    background = Background("workflow policy")
    return background, background.submit(Policy(config, overrides, checkpoint=checkpoint).__aenter__())


@solver
def workflow_policy(
    config: str = "config/embedded.yaml", checkpoint: str | None = None, overrides: list[str] | str | None = None,
    domain: Domain = "math", fallback: bool = False,
) -> Solver:  # fmt: skip
    """Writes and runs a workflow for each sample.

    Args:
        config: YAML configuration.
        checkpoint: folder of an adapter (default: the newest of the configured run).
        overrides: ``name=value`` settings.
        domain: domain of samples without one in their metadata: math, code, qa or one of ``data.domains``.
        fallback: ask the executor directly if the workflow fails.
    """
    changes = (overrides,) if isinstance(overrides, str) else tuple(overrides or ())

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        background, opening = _opened(config, checkpoint, changes)
        policy = await asyncio.shield(asyncio.wrap_future(opening))
        metadata = state.metadata
        work = policy.solve(
            state.user_prompt.text,
            metadata.get("domain", domain),
            context=metadata.get("context") or "",
            entry_point=metadata.get("entry_point"),
            public_tests=metadata.get("public_tests") or (),
            draw=Draw(seed=state.epoch - 1),
            fallback=fallback,
        )
        try:
            solution = await asyncio.wrap_future(background.submit(work))
        except DataError as error:  # too long: fails this sample, not the evaluation
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
        read, written = solution.tokens()
        state.messages.append(message)
        state.output = ModelOutput(
            model="workflow-policy",
            choices=[ChatCompletionChoice(message=message, stop_reason="stop")],
            usage=ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written),
            error=None if execution.outcome == "finished" else f"{execution.outcome}: {execution.error}",
        )
        return state

    return solve
