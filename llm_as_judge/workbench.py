"""Everything a run works with, built from the configuration and closed together: one async context manager.

Here, and only here, parts of all layers meet: the embedded server (started when the configuration says so), the LLM
clients, the sandbox, the workflow runner, the judges and the reward; ``load_policy`` and the problem sources beside
it. Training, evaluation and ``solve`` are written against this.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType

from llm_as_judge.config.loading import resolve_model
from llm_as_judge.config.schema import Config
from llm_as_judge.data.files import check_whole
from llm_as_judge.data.sampler import DomainSampler
from llm_as_judge.data.settings import field_spellings
from llm_as_judge.datasets.load import load_file
from llm_as_judge.embedded.supervise import EmbeddedServer
from llm_as_judge.embedded.tasks.generate import problems as generated
from llm_as_judge.endpoints import open_client, second_client
from llm_as_judge.engines.local import LocalEngine
from llm_as_judge.engines.vllm import VLLMEngine
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.evaluate import Sampled
from llm_as_judge.judging.audit import AuditedJudge
from llm_as_judge.judging.judge import RULES, Judge, JudgeLike
from llm_as_judge.llm import LLMClient, Usage
from llm_as_judge.rewards.custom import CustomRewards, load_function
from llm_as_judge.rewards.total import RewardFunction
from llm_as_judge.rl.policy import Policy, PolicySettings, fit_threads, load_trained
from llm_as_judge.rl.rollout import Engine, RolloutParts
from llm_as_judge.rl.settings import TrainerSettings
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.types import DOMAINS, Domain, Problem, Question
from llm_as_judge.workflow.enhancer import load_enhancer
from llm_as_judge.workflow.prompt import DEFAULT_GUIDANCE, Example, Prompt, bare_prompt, build_prompt, load_guidance
from llm_as_judge.workflow.run import WorkflowRunner

#: Different problems of each domain that an embedded run draws from.
_EMBEDDED_POOL = 400
_ROLLOUT_CONCURRENCY = 48


class Workbench:
    """Open with ``async with``; raises ``ConfigError`` or ``ProviderError`` before any work is done."""

    executor: LLMClient
    judge_model: LLMClient
    second_client: LLMClient | None
    sandbox: Sandbox
    runner: WorkflowRunner
    judge: Judge  # as configured
    official: Judge  # rules and tests only: the benchmark's own metric
    reward: RewardFunction

    def __init__(self, config: Config) -> None:
        self.config = config
        self.guidance = load_guidance(config.workflow.guidance) if config.workflow.guidance else DEFAULT_GUIDANCE
        self.enhance = load_enhancer(config.workflow)
        self.reward = reward_function(config)
        self.custom = _custom_rewards(config, self.reward)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Workbench:
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _open(self) -> None:
        config = self.config
        enter = self._stack.enter_async_context
        roles = (config.executor, config.judge)
        config.output.log_dir.mkdir(parents=True, exist_ok=True)
        for address in {e.base_url for e in roles if e.provider == "embedded"}:
            await enter(EmbeddedServer(address, config.output.log_dir / "embedded_server.log"))
        self.sandbox = await enter(Sandbox(config.sandbox))
        self.executor = await enter(open_client(config.executor))
        judge = config.judge
        self.judge_model = await enter(open_client(judge, judge.cache))
        await self.executor.check()
        if config.judge.mode != "rules":
            await self.judge_model.check()
        self.runner = WorkflowRunner(self.executor, self.sandbox, config.workflow, config.executor, self.enhance)
        self.second_client = await second_client(judge, self._stack)
        self.judge = Judge(judge, self.judge_model, self.sandbox, self.second_client)
        self.official = Judge(RULES, None, self.sandbox)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def usage(self) -> dict[str, Usage]:
        """What each model has been asked so far, and at what cost."""
        clients = {"executor": self.executor, "judge": self.judge_model, "second_judge": self.second_client}
        return {role: client.usage for role, client in clients.items() if client is not None}

    def rollout_parts(self, judge: JudgeLike) -> RolloutParts:
        return RolloutParts(self.runner, judge, self.reward, concurrency=_ROLLOUT_CONCURRENCY)

    def training_parts(self, judge: JudgeLike) -> RolloutParts:
        """``rollout_parts`` with what only training has: the user's own rewards, and truncated workflows not run."""
        masked = self.config.training.mask_truncated_completions
        return replace(self.rollout_parts(judge), truncated="mask" if masked else "floor", extra=self.custom)

    def audited_judge(self) -> AuditedJudge | None:
        """The judge with the reward-hacking alarm; None where no model judges or nothing is to be checked."""
        settings = self.config.judge
        if settings.mode == "rules" or not settings.audit_share:
            return None
        return AuditedJudge(settings, self.judge, self.second_client)

    def prompt(self, question: Question, examples: Sequence[Example] = ()) -> Prompt:
        """Layer 1 for one question; switched off, the problem alone."""
        if not self.config.workflow.layer1:
            return bare_prompt(question)
        return build_prompt(
            question, operators=self.config.workflow.operators, examples=examples, guidance=self.guidance
        )


def _custom_rewards(config: Config, reward: RewardFunction) -> CustomRewards | None:
    functions = config.reward.functions
    if not functions:
        return None
    return CustomRewards({name: (load_function(name), weight) for name, weight in functions.items()}, reward.slack / 2)


def load_policy(config: Config, checkpoint: Path | None = None) -> Policy:
    """The configured policy, with the adapter of ``checkpoint`` if given."""
    model = config.model
    settings = PolicySettings(
        model_name=resolve_model(config).path,
        lora_rank=model.lora_rank,
        lora_alpha=model.lora_alpha,
        lora_dropout=model.lora_dropout,
        lora_target_modules=model.lora_target_modules,
        dtype=model.dtype,
        device=model.device,
        gradient_checkpointing=model.gradient_checkpointing,
        seed=config.training.seed,
    )
    policy = load_trained(checkpoint, settings) if checkpoint else Policy.load(settings)
    fit_threads(policy)
    return policy


def _by_domain(problems: Sequence[Problem]) -> dict[Domain, list[Problem]]:
    return {d: [p for p in problems if p.question.domain == d] for d in DOMAINS}


def training_sampler(config: Config) -> DomainSampler:
    """Training problems in the configured ratios."""
    data = config.data
    if data.source == "embedded":
        pool = min(data.max_problems or _EMBEDDED_POOL, _EMBEDDED_POOL)
        pools = {d: generated(d, "train", pool) for d in DOMAINS if data.domain_ratios[d] > 0}
    else:
        assert data.train_dataset is not None  # the schema refuses this
        pools = _by_domain(problems_from(data.train_dataset, data.max_problems))
    return DomainSampler(pools, data.domain_ratios, config.training.seed)


def heldout_problems(config: Config) -> list[Problem]:
    """``data.eval_problems`` held-out problems in the configured ratios, the same in every run."""
    data = config.data
    if data.source == "embedded":
        pools = {d: generated(d, "heldout", data.eval_problems) for d in DOMAINS if data.domain_ratios[d] > 0}
        return DomainSampler(pools, data.domain_ratios).sample(data.eval_problems)
    path = data.test_dataset
    if path is None:
        raise ConfigError("data.test_dataset is not set; name a JSONL file of held-out problems")
    return problems_from(path, data.eval_problems)


def problems_from(path: Path, limit: int | None = None) -> list[Problem]:
    """Problems of a file the user names, its fields spelt as config/dataset.yaml allows.

    Raises ``DataError``, also where the file is of a ``data process`` that broke off.
    """
    check_whole(path)
    return load_file(path, limit, field_spellings())


def make_engine(config: Config, policy: Policy, checkpoints: Path) -> Engine:
    """The engine that samples workflows: the trainer's own weights, or a vLLM server with ``--enable-lora``."""
    if config.generation.engine == "vllm":
        engine = VLLMEngine(config.engine, resolve_model(config).path, checkpoints / "adapters", policy.tokenizer)
        engine.check()
        return engine
    return LocalEngine(policy, policy.tokenizer)


def held_out_sampling(config: Config, bench: Workbench, policy: Policy, engine: Engine) -> Sampled:
    """How workflows are sampled for an evaluation: without examples from the buffer."""
    generation = config.generation
    return Sampled(
        engine=engine,
        encode=lambda question: policy.encode(bench.prompt(question)),
        temperature=generation.eval_temperature,
        top_p=generation.top_p,
        top_k=generation.top_k,
        max_new_tokens=config.training.response_max_length,
        special_tokens=list(getattr(policy.tokenizer, "all_special_tokens", ())),
        seed=1_000_003 + config.training.seed,
    )


def validation_problems(config: Config) -> list[Problem]:
    """What ``training.eval_every`` measures on: never the held-out problems of the final report."""
    data = config.data
    if data.source == "embedded":
        pools = {d: generated(d, "train", 60, seed=1) for d in DOMAINS if data.domain_ratios[d] > 0}
        return DomainSampler(pools, data.domain_ratios).sample(60)
    if data.val_dataset is None:
        raise ConfigError("training.eval_every needs data.val_dataset; name a JSONL file, or set eval_every=0")
    return problems_from(data.val_dataset, data.eval_problems)


def reward_function(config: Config) -> RewardFunction:
    """The weighted terms of the ``reward`` section."""
    settings = config.reward
    weights = {str(term): weight for term, weight in settings.reward_weights.items()}
    return RewardFunction(weights, token_budget=settings.token_budget, operator_budget=settings.operator_budget)


def trainer_settings(config: Config) -> TrainerSettings:
    """What the loop takes from the sections ``training``, ``generation`` and ``judge``."""
    names = {field.name for field in fields(TrainerSettings)}
    generation = config.generation
    return TrainerSettings(
        **{name: value for name, value in config.training.model_dump().items() if name in names},
        temperature=generation.temperature,
        final_temperature=generation.final_temperature,
        top_p=generation.top_p,
        top_k=generation.top_k,
        stop_on_alarm=config.judge.audit_action == "stop",
    )
