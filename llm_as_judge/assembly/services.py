"""Composition root: models, sandbox, judge and reward of a run, opened from the configuration and closed together.

    async with open_services(config) as services:
        execution = await services.runner.run(source, question)

An embedded server is started for endpoints of that provider without an address.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from llm_as_judge.assembly.hosted import HostedModels
from llm_as_judge.assembly.progress import SILENT, Progress
from llm_as_judge.config.schema import POLICY, Config
from llm_as_judge.embedded.server import own_server
from llm_as_judge.judging.judge import OFFICIAL, RULES_ONLY, Judge
from llm_as_judge.judging.own import AnyJudge, OwnJudge
from llm_as_judge.llm.client import LLMClient, Usage
from llm_as_judge.llm.concurrency import Load
from llm_as_judge.rewards.custom import load_rewards
from llm_as_judge.rewards.terms import RewardFunction
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.workflow.enhancer import Enhancer, load_enhancer
from llm_as_judge.workflow.run import Executor, WorkflowRunner

logger = logging.getLogger(__name__)

#: Roles in ``Config.endpoints`` that workflows do not need.
JUDGES = ("judge", "second_judge")


@dataclass(frozen=True, slots=True)
class Services:
    """Open components; closed at the end of ``async with``."""

    clients: Mapping[str, LLMClient]  # by role: executor, executors.NAME, judge, second_judge
    sandbox: Sandbox
    enhance: Enhancer  # Layer 2
    runner: WorkflowRunner
    training: RolloutParts  # rollouts for training
    official: RolloutParts  # rollouts judged by the benchmark's own metric
    alone: Judge | None  # the LLM judge without rules, if a model judges
    hosted: HostedModels  # to be given the policy once it is loaded

    def usage(self) -> dict[str, Usage]:
        return {role: client.usage for role, client in self.clients.items()}

    def executor_load(self) -> Load:
        return sum((client.load() for role, client in self.clients.items() if role not in JUDGES), Load())


@asynccontextmanager
async def open_services(
    config: Config, progress: Progress = SILENT, *, judging: bool = True
) -> AsyncIterator[Services]:
    """Open the configured services. Raises ``ConfigError`` or ``ProviderError`` before any work is done.

    ``progress`` shows pauses for an endpoint. Without ``judging`` no judge model is used: tests, rules or a function.
    """
    enhance = load_enhancer(config.workflow, config.data.known)
    reward = RewardFunction(config.reward, config.workflow.repairs)
    free = [f"executor {name}".strip() for name, own in config.choices.items() if not own.cost(1, 1)]
    if 0 < len(free) < len(config.choices):
        logger.warning("%s has no price, unlike others, so the reward cannot weigh tokens by it", free[0])
    own_rewards = load_rewards(config.reward, reward.slack / 2)
    roles = [role for role in config.endpoints() if judging or role not in JUDGES]
    hosted = HostedModels(config)
    async with Sandbox(config.sandbox) as sandbox, open_clients(config, roles, hosted) as clients:
        model, second = clients.get("judge"), clients.get("second_judge")
        judge: AnyJudge = (usual := Judge(config.judge if judging else RULES_ONLY, model, sandbox, second))
        scorer: AnyJudge = (official := Judge(OFFICIAL, None, sandbox))
        own = config.judge.own and (model is not None) == config.judge.asks_model
        if own:
            judge, scorer = OwnJudge(config.judge, None, model, True), OwnJudge(config.judge, official, model)
        alone = usual.without_rules() if model and not own else None
        named = {name: Executor(clients[f"executors.{name}"], one) for name, one in config.executors.items()}
        runner = WorkflowRunner(clients["executor"], sandbox, config.workflow, config.executor, enhance, named)
        measuring = RolloutParts(
            runner,
            scorer,
            reward,
            concurrency=config.training.rollout_concurrency,
            max_unscored=config.training.max_unscored,
            patience_s=config.training.patience_s,
            on_pause=progress.say,
            repairs=config.workflow.repairs,
            judges_attempts=True,
        )
        training = replace(
            measuring,
            judge=judge,
            judges_attempts=False,
            truncated="mask" if config.training.mask_truncated_completions else "floor",
            extra=own_rewards,
        )
        yield Services(clients, sandbox, enhance, runner, training, measuring, alone, hosted)


@asynccontextmanager
async def open_judge(config: Config) -> AsyncIterator[AnyJudge]:
    """Open the configured judge without a sandbox, which cannot judge code. Raises ``ProviderError``."""
    async with open_clients(config, JUDGES) as clients:
        judge, second = clients.get("judge"), clients.get("second_judge")
        yield OwnJudge(config.judge, llm=judge) if config.judge.own else Judge(config.judge, judge, second=second)


@asynccontextmanager
async def open_clients(
    config: Config, roles: Sequence[str], hosted: HostedModels | None = None
) -> AsyncIterator[dict[str, LLMClient]]:
    """Open the configured models of ``roles``, checked by one request or loaded; the policy comes later."""
    hosted = hosted or HostedModels(config)
    endpoints = {role: endpoint for role, endpoint in config.endpoints().items() if role in roles}
    async with AsyncExitStack() as stack:
        if started := [role for role, own in endpoints.items() if own.provider == "embedded" and not own.base_url]:
            server = own_server(config.output.log_dir / "embedded_server.log")
            address = {"base_url": await asyncio.to_thread(stack.enter_context, server)}
            endpoints |= {role: endpoints[role].model_copy(update=address) for role in started}
        clients = {}
        for role, endpoint in endpoints.items():
            own = [hosted.server(endpoint)] if endpoint.provider == "local" else []
            clients[role] = await stack.enter_async_context(LLMClient(endpoint, own))
            if not own:
                await clients[role].check()
            elif endpoint.model != POLICY:
                await own[0].open()
        yield clients
