"""``llm-as-judge solve`` and ``workflow run``: one problem, by the policy's workflow or by a given one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_as_judge.config.schema import Config
from llm_as_judge.rl.rollout import extract_code
from llm_as_judge.runs.policy import load_author
from llm_as_judge.runs.services import open_services
from llm_as_judge.types import Execution, Question
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.repair import initialise_unbound

_FALLBACK = """class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem: str{entry}):
        result = await self.custom(input=problem, instruction="")
        return result['response'], 0.0
"""


@dataclass(frozen=True, slots=True)
class Solution:
    """The workflow that the policy wrote, and its run."""

    checkpoint: Path | None
    workflow: str
    execution: Execution
    repaired: bool
    fallback: bool  # the workflow failed, and a plain call of the executor answered

    def as_json(self) -> dict[str, Any]:
        execution = self.execution
        return {
            "checkpoint": str(self.checkpoint) if self.checkpoint else None,
            "answer": execution.answer,
            "outcome": execution.outcome,
            "error": execution.error,
            "repaired": self.repaired,
            "fallback": self.fallback,
            "executor_tokens": execution.tokens,
            "cost": execution.cost,
            "workflow": self.workflow,
            "trace": [dataclasses.asdict(call) for call in execution.calls],
        }


async def solve(
    config: Config, question: Question, *, checkpoint: Path | None, repair: bool = False, fallback: bool = False
) -> Solution:
    """The policy writes a workflow for the question, which is run and traced."""
    async with open_services(config) as services:
        ((completion,),) = load_author(config, checkpoint).write([question])
        workflow = extract_code(completion.text, completion.prefill)
        repaired = fell_back = False
        if repair:
            mended = initialise_unbound(workflow, lint(workflow, entry_point=question.entry_point))
            workflow, repaired = mended, mended != workflow
        execution = await services.runner.run(workflow, question)
        if fallback and execution.outcome != "finished":
            fell_back = True
            entry = ", entry_point: str" if question.entry_point else ""
            execution = await services.runner.run(_FALLBACK.format(entry=entry), question)
    return Solution(checkpoint, workflow, execution, repaired, fell_back)


async def run_workflow(config: Config, source: str, question: Question) -> Execution:
    """A workflow's text on one problem, without any policy."""
    async with open_services(config) as services:
        return await services.runner.run(source, question)
