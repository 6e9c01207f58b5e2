"""Everything a run works with, built from the configuration and closed together: one async context manager.

Here, and only here, parts of all layers meet: the embedded server (started when the configuration says so), the LLM
clients, the sandbox, the workflow runner, the judges and the reward; ``load_policy`` and the problem sources beside
it. Training, evaluation and ``solve`` are written against this.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType

from llm_as_judge.cache import ResponseCache
from llm_as_judge.config import Config, resolve_model
from llm_as_judge.data.sampler import DomainSampler
from llm_as_judge.datasets.load import load_file
from llm_as_judge.embedded.supervise import EmbeddedServer
from llm_as_judge.embedded.tasks.generate import problems as generated
from llm_as_judge.engines.local import LocalEngine
from llm_as_judge.engines.vllm import VLLMEngine
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.evaluate import Sampled
from llm_as_judge.judging.judge import Judge
from llm_as_judge.judging.llm_judge import JUDGE_SYSTEM
from llm_as_judge.llm import LLMClient, LLMSettings
from llm_as_judge.rewards.total import RewardFunction
from llm_as_judge.rl.policy import Policy, PolicySettings, load_trained
from llm_as_judge.rl.rollout import Engine, JudgeLike, RolloutParts
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.sandbox.limits import Limits
from llm_as_judge.schema import Endpoint
from llm_as_judge.types import DOMAINS, Domain, Problem, Question
from llm_as_judge.workflow.enhancer import load_enhancer
from llm_as_judge.workflow.lint import lint
from llm_as_judge.workflow.prompt import DEFAULT_GUIDANCE, Example, Prompt, build_prompt, load_guidance
from llm_as_judge.workflow.run import WorkflowRunner

#: Different problems of each domain that an embedded run draws from.
_EMBEDDED_POOL = 400
_ROLLOUT_CONCURRENCY = 48


def _client(endpoint: Endpoint) -> LLMClient:
    settings = LLMSettings(
        base_url=endpoint.base_url,
        api_key=endpoint.api_key,
        model=endpoint.model,
        temperature=endpoint.temperature,
        top_p=endpoint.top_p,
        max_tokens=endpoint.max_tokens,
        timeout_s=endpoint.timeout_s,
        max_retries=endpoint.max_retries,
        concurrency=endpoint.concurrency,
        price_per_million_input=endpoint.price_per_million_input,
        price_per_million_output=endpoint.price_per_million_output,
        no_proxy=endpoint.no_proxy,
    )
    return LLMClient(settings, ResponseCache(None))


class Workbench:
    """Open with ``async with``; raises ``ConfigError`` or ``ProviderError`` before any work is done."""

    executor: LLMClient
    judge_model: LLMClient
    sandbox: Sandbox
    runner: WorkflowRunner
    judge: Judge  # as configured
    official: Judge  # rules and tests only: the benchmark's own metric
    reward: RewardFunction

    def __init__(self, config: Config) -> None:
        self.config = config
        self.guidance = load_guidance(config.workflow.guidance) if config.workflow.guidance else DEFAULT_GUIDANCE
        self.enhance = load_enhancer(config.workflow.enhancer)
        self.reward = RewardFunction(
            {str(term): weight for term, weight in config.reward.reward_weights.items()},
            token_budget=config.reward.token_budget,
            operator_budget=config.reward.operator_budget,
        )
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
        box = config.sandbox
        limits = Limits(
            cpu_seconds=box.cpu_seconds,
            wall_seconds=box.wall_seconds,
            memory_mb=box.memory_mb,
            output_bytes=box.output_bytes,
            open_files=box.open_files,
            max_calls=config.workflow.max_calls,
        )
        self.sandbox = await enter(Sandbox(limits, box.mode))
        self.executor = await enter(_client(config.executor))
        self.judge_model = await enter(_client(config.judge))
        await self.executor.check()
        if config.judge.mode != "rules":
            await self.judge_model.check()
        self.runner = WorkflowRunner(
            self.executor, self.sandbox, self.enhance, limits, operators=config.workflow.operators
        )
        system = None if config.judge.provider == "embedded" else JUDGE_SYSTEM
        self.judge = Judge(config.judge.mode, self.judge_model, self.sandbox, system=system)
        self.official = Judge("rules", None, self.sandbox)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def rollout_parts(self, judge: JudgeLike) -> RolloutParts:
        def codes(source: str, entry_point: str | None) -> Sequence[str]:
            return [f.code for f in lint(source, entry_point=entry_point)]

        return RolloutParts(self.runner, judge, self.reward, codes, concurrency=_ROLLOUT_CONCURRENCY)

    def prompt(self, question: Question, examples: Sequence[Example] = ()) -> Prompt:
        """Layer 1 for one question."""
        return build_prompt(
            question, operators=self.config.workflow.operators, examples=examples, guidance=self.guidance
        )


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
    return load_trained(checkpoint, settings) if checkpoint else Policy.load(settings)


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
        pools = _by_domain(load_file(data.train_dataset, data.max_problems))
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
    return load_file(path, data.eval_problems)


def make_engine(config: Config, policy: Policy, checkpoints: Path) -> Engine:
    """The engine that samples workflows: the trainer's own weights, or a vLLM server with ``--enable-lora``."""
    if config.generation.engine == "vllm":
        address = os.environ.get("VLLM_BASE_URL")
        if not address:
            raise ConfigError("generation.engine = 'vllm' needs VLLM_BASE_URL, the address of the vLLM server")
        return VLLMEngine(address, resolve_model(config).path, checkpoints / "adapters", policy.tokenizer)
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
    return load_file(data.val_dataset, data.eval_problems)
