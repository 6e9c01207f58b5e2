"""The problems as verifiers' tasks, and their reward."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

import msgspec
import verifiers.v1 as vf
from pydantic import Field

from llm_as_judge.errors import DataError, InfrastructureError
from llm_as_judge.integrations.rows import heldout_rows, training_rows
from llm_as_judge.integrations.score import RECORD, Scorer
from llm_as_judge.seeds import derived_seed
from llm_as_judge.types import Attempt, Rollout


@cache
def shared_scorer(config: str, overrides: tuple[str, ...]) -> Scorer:
    """Share one scorer per process for these settings."""
    return Scorer(config, overrides)


class WorkflowTaskConfig(vf.TaskConfig):
    config: str = "config/training.yaml"
    """YAML configuration."""
    overrides: list[str] = Field(default_factory=list)
    """``name=value`` settings."""

    @property
    def scorer(self) -> Scorer:
        return shared_scorer(self.config, tuple(self.overrides))


class WorkflowTasksetConfig(vf.TasksetConfig):
    task: WorkflowTaskConfig = WorkflowTaskConfig()
    split: Literal["train", "heldout"] = "train"
    count: int | None = None
    """Number of problems; by default as many as a whole run, or all held-out ones."""


class WorkflowData(vf.TaskData):
    record: str
    domain: str
    dataset: str
    config: str = "config/training.yaml"
    overrides: list[str] = Field(default_factory=list)


class WorkflowState(vf.State):
    rollout: Any = None  # where the harness has scored it already


class WorkflowTask(vf.Task[WorkflowData, WorkflowState, WorkflowTaskConfig]):
    @vf.reward
    async def workflow_reward(self, trace: vf.Trace) -> float:
        """Give the five-part reward; terms, accuracy and executor tokens are metrics of the trace, ``facts`` its info.

        Raises ``InfrastructureError`` for a rollout that could not be scored, ``DataError`` without a reply.
        """
        if not trace.assistant_messages:
            raise DataError("the policy gave no reply; give its server a longer context")
        scorer: Scorer = self.config.scorer
        rollout = trace.state.rollout or await scorer.score(
            {RECORD: self.data.record},
            trace.assistant_messages[-1].content or "",
            finish_reason="length" if trace.is_truncated else "stop",
            seed=derived_seed(scorer.config.training.seed, trace.id),
            attempts=msgspec.convert(trace.info.get("attempts", ()), tuple[Attempt, ...]),
        )
        trace.info |= facts(rollout)
        if rollout.reward.total is None:
            raise InfrastructureError(f"the workflow could not be scored: {trace.info['reason']}")
        trace.record_metrics({"accuracy": float(rollout.verdict.correct is True), "executor_tokens": rollout.tokens})
        trace.record_metrics(dict(rollout.reward.terms))
        return rollout.reward.total


class WorkflowTaskset(vf.Taskset[WorkflowTask, WorkflowTasksetConfig]):
    """Training problems in the configured ratios and order, or held-out problems."""

    def load(self) -> Iterator[WorkflowTask]:
        rows = training_rows if self.config.split == "train" else heldout_rows
        for index, row in enumerate(rows(self.config.task.scorer.config, self.config.count)):
            messages = list(row["prompt"])
            system = messages.pop(0)["content"] if messages[0]["role"] == "system" else None
            yield WorkflowTask(
                WorkflowData(
                    idx=index,
                    name=row["id"],
                    prompt=messages,
                    system_prompt=system,
                    record=row[RECORD],
                    domain=row["domain"],
                    dataset=row["dataset"],
                    config=self.config.task.config,
                    overrides=self.config.task.overrides,
                ),
                self.config.task,
            )


def facts(rollout: Rollout) -> dict[str, Any]:
    """Tell what became of the last workflow, for people and for models that rewrite prompts.

    Nothing of the reference or the hidden tests, both of which a judge's reason may quote: of tests only whether they
    passed, and reference answers in a model's words are masked.
    """
    execution, verdict, reason = rollout.execution, rollout.verdict, rollout.trouble
    if verdict.tier == "tests" and verdict.correct is not None:
        reason = reason.partition(":")[0]
    elif verdict.tier in ("llm", "rubric"):
        for answer in rollout.problem.reference.answers:
            if form := r"[\W_]*".join(filter(str.isalnum, answer)):  # whatever stands between its letters and digits
                reason = re.sub(rf"(?<!\w){form}(?!\w)", "[reference]", reason, flags=re.IGNORECASE)
    return {
        "outcome": execution.outcome,
        "error": execution.error,
        "findings": [*msgspec.to_builtins(execution.findings)],
        "operators": [call.name for call in execution.calls],
        "answer": execution.answer,
        "reason": reason,
    }
