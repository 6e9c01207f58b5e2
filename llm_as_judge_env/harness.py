"""The policy's turns, asked for from this process, and the environment."""

import asyncio
from typing import Any, Literal

import msgspec
import verifiers.v1 as vf
from openai import AsyncOpenAI

from llm_as_judge.integrations.score import RECORD
from llm_as_judge.seeds import derived_seed
from llm_as_judge.types import Attempt, Rollout
from llm_as_judge_env.taskset import WorkflowData, shared_scorer


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
                failed = await scorer.turn({RECORD: data.record}, text, ended, seed, attempts)
                if isinstance(failed, Rollout):
                    trace.state.rollout = failed
                    break
                attempts.append(failed)
                messages += [{"role": "assistant", "content": text}, {"role": "user", "content": failed.told}]
        if attempts:
            trace.info["attempts"] = msgspec.to_builtins(attempts)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class WorkflowEnvConfig(vf.SingleAgentEnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """The policy. It needs no container: workflows run in our own sandbox."""


class WorkflowEnv(vf.SingleAgentEnv, vf.Env[WorkflowEnvConfig]):
    """One agent; the scorer closes with the server."""

    async def stop(self) -> None:
        await asyncio.to_thread(self.config.taskset.task.scorer.close)
