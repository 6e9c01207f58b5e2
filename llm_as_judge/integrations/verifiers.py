"""verifiers (0.4) with our environment, so that prime-rl can train on it: tasks, an in-process harness, an environment.

    vf-eval llm-as-judge-env --env.taskset.task.config config/training.yaml -m MODEL --client.base-url URL --no-push

verifiers loads environments by module name: ``llm_as_judge_env`` exports the classes here. The policy is asked once,
with Layer 1, and its whole reply is the workflow; with ``workflow.repairs`` it is told why a workflow failed, in
another turn. Each worker of an environment server opens its own sandbox and
clients. A rollout that could not be scored raises: verifiers records the error without a reward, and prime-rl leaves it
out of its group and of training.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from pydantic import Field

from llm_as_judge.errors import ConfigError, DataError, InfrastructureError
from llm_as_judge.integrations.rows import heldout_rows, training_rows
from llm_as_judge.integrations.score import RECORD, Scorer, shared_scorer
from llm_as_judge.llm.client import derived_seed
from llm_as_judge.types import Attempt

try:
    import verifiers.v1 as vf
    from openai import AsyncOpenAI
except ImportError as error:
    raise ConfigError(f"verifiers is an extra: python -m pip install 'llm-as-judge[verifiers]' ({error})") from error


class WorkflowTaskConfig(vf.TaskConfig):
    config: str = "config/training.yaml"
    """YAML configuration."""
    overrides: list[str] = Field(default_factory=list)
    """``name=value`` settings."""

    @property
    def scorer(self) -> Scorer:
        """Shared by the process."""
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


class WorkflowTask(vf.Task[WorkflowData, vf.State, WorkflowTaskConfig]):
    @vf.reward
    async def workflow_reward(self, trace: vf.Trace) -> float:
        """The five-part reward; terms, accuracy and executor tokens are metrics of the trace.

        Raises ``InfrastructureError`` for a rollout that could not be scored, ``DataError`` without a reply.
        """
        if not trace.assistant_messages:
            raise DataError("the policy gave no reply; give its server a longer context")
        scorer: Scorer = self.config.scorer
        rollout = await scorer.score(
            {RECORD: self.data.record},
            trace.assistant_messages[-1].content or "",
            finish_reason="length" if trace.is_truncated else "stop",
            seed=derived_seed(scorer.config.training.seed, trace.id),
            attempts=msgspec.convert(trace.info.get("attempts", ()), tuple[Attempt, ...]),
        )
        if rollout.reward.total is None:
            raise InfrastructureError(f"the workflow could not be scored: {rollout.trouble}")
        execution = rollout.execution
        trace.info["outcome"] = execution.outcome
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


class WorkflowHarness(vf.Harness[vf.HarnessConfig]):
    """A request for each turn from this process.

    verifiers' own ``null`` harness would start an interpreter for each rollout.
    """

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: vf.ModelContext, trace: vf.Trace, runtime: vf.Runtime, endpoint: str, secret: str,
        mcp_urls: dict[str, str], data: vf.TaskData,
    ) -> vf.ProgramResult:  # fmt: skip
        system, prompt = self.resolve_prompt(data)
        messages: list[Any] = [{"role": "system", "content": system}] if system else []
        messages += [message.model_dump(exclude_none=True) for message in prompt]
        assert isinstance(data, WorkflowData)
        scorer, attempts = shared_scorer(data.config, tuple(data.overrides)), list[Attempt]()
        repairs, seed = scorer.config.workflow.repairs, derived_seed(scorer.config.training.seed, trace.id)
        async with AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
            while True:
                reply = await client.chat.completions.create(model=ctx.model, messages=messages)
                text, end = reply.choices[0].message.content or "", reply.choices[0].finish_reason
                if len(attempts) == repairs:
                    break
                ended: Literal["stop", "length"] = "length" if end == "length" else "stop"
                failed = await scorer.attempt({RECORD: data.record}, text, finish_reason=ended, seed=seed)
                if failed is None:
                    break
                attempts.append(failed)
                messages += [{"role": "assistant", "content": text}, {"role": "user", "content": failed.told}]
        if attempts:
            trace.info["attempts"] = msgspec.to_builtins(attempts)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class WorkflowEnvConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """The policy. It needs no container: workflows run in our own sandbox."""


class WorkflowEnv(vf.Env[WorkflowEnvConfig]):
    """One agent; the scorer closes with the server."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        await agents.agent.run(task)

    async def stop(self) -> None:
        await asyncio.to_thread(self.config.taskset.task.scorer.close)
