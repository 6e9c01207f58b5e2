"""What every run works with, built from the configuration and closed together.

    async with open_services(config) as services:
        execution = await services.runner.run(source, question)

The embedded server is started where the configuration says so. Here, and only here, the parts of all rooms meet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from llm_as_judge.cache import ResponseCache
from llm_as_judge.config.schema import Config, EndpointConfig, JudgeConfig
from llm_as_judge.embedded.supervise import EmbeddedServer
from llm_as_judge.judging.judge import RULES, Judge, JudgeLike
from llm_as_judge.llm import LLMClient, Usage
from llm_as_judge.rewards.total import RewardFunction
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.workflow.enhancer import Enhancer, load_enhancer
from llm_as_judge.workflow.run import WorkflowRunner

_ROLLOUT_CONCURRENCY = 48


@dataclass(frozen=True, slots=True)
class Services:
    """Open until the ``async with`` is left."""

    executor: LLMClient
    sandbox: Sandbox
    enhance: Enhancer  # Layer 2
    runner: WorkflowRunner
    judge: Judge  # as configured
    judge_model: LLMClient | None  # None where no model judges
    second_model: LLMClient | None
    official: Judge  # rules and tests only: the benchmark's own metric
    reward: RewardFunction

    def usage(self) -> dict[str, Usage]:
        """What each model has been asked so far, and at what cost."""
        clients = {"executor": self.executor, "judge": self.judge_model, "second_judge": self.second_model}
        return {role: client.usage for role, client in clients.items() if client is not None}

    def rollout_parts(self, judge: JudgeLike) -> RolloutParts:
        return RolloutParts(self.runner, judge, self.reward, concurrency=_ROLLOUT_CONCURRENCY)


@asynccontextmanager
async def open_services(config: Config) -> AsyncIterator[Services]:
    """Raises ``ConfigError`` or ``ProviderError`` before any work is done."""
    enhance, reward = load_enhancer(config.workflow), RewardFunction(config.reward)
    async with AsyncExitStack() as stack:
        await _start_embedded(config, stack, config.executor, config.judge)
        sandbox = await stack.enter_async_context(Sandbox(config.sandbox))
        executor = await _opened(stack, config.executor)
        judge, model, second = await _open_judge(config.judge, stack, sandbox)
        runner = WorkflowRunner(executor, sandbox, config.workflow, config.executor, enhance)
        official = Judge(RULES, None, sandbox)
        yield Services(executor, sandbox, enhance, runner, judge, model, second, official, reward)


@asynccontextmanager
async def open_judge(config: Config) -> AsyncIterator[Judge]:
    """The configured judge alone, without a sandbox: it cannot judge code. Raises ``ProviderError``."""
    async with AsyncExitStack() as stack:
        if config.judge.mode != "rules":
            await _start_embedded(config, stack, config.judge)
        yield (await _open_judge(config.judge, stack, None))[0]


def open_client(endpoint: EndpointConfig, cache: Path | None = None) -> LLMClient:
    """A client of ``endpoint`` whose deterministic replies are kept in ``cache`` (None: in memory)."""
    return LLMClient(endpoint, ResponseCache(cache))


async def _start_embedded(config: Config, stack: AsyncExitStack, *endpoints: EndpointConfig) -> None:
    for address in {e.base_url for e in endpoints if e.provider == "embedded"}:
        config.output.log_dir.mkdir(parents=True, exist_ok=True)
        log = config.output.log_dir / "embedded_server.log"
        await stack.enter_async_context(EmbeddedServer(address, log))


async def _open_judge(
    judge: JudgeConfig, stack: AsyncExitStack, sandbox: Sandbox | None
) -> tuple[Judge, LLMClient | None, LLMClient | None]:
    """The judge, its model and the second one, where there are such."""
    model = second = None
    if judge.mode != "rules":
        model = await _opened(stack, judge, judge.cache)
        if judge.second_model:
            changed = {"model": judge.second_model, "base_url": judge.second_base_url or judge.base_url}
            second = await _opened(stack, judge.model_copy(update=changed), judge.cache)
    return Judge(judge, model, sandbox, second), model, second


async def _opened(stack: AsyncExitStack, endpoint: EndpointConfig, cache: Path | None = None) -> LLMClient:
    """A client that has been answered."""
    client = await stack.enter_async_context(open_client(endpoint, cache))
    await client.check()
    return client
