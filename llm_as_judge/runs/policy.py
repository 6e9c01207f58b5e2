"""The policy of a run: its weights, the engine that samples from it, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from llm_as_judge.config.loading import resolve_model
from llm_as_judge.config.schema import Config
from llm_as_judge.engines.local import LocalEngine
from llm_as_judge.engines.vllm import VLLMEngine
from llm_as_judge.evaluation.evaluate import Trained
from llm_as_judge.rl.checkpoint import latest, step_of
from llm_as_judge.rl.policy import Policy, fit_threads
from llm_as_judge.rl.rollout import Engine
from llm_as_judge.types import Question
from llm_as_judge.workflow.prompt import DEFAULT_GUIDANCE, Example, Prompt, bare_prompt, build_prompt, load_guidance


def checkpoint_folder(config: Config) -> Path:
    """Where the configured run's checkpoints are."""
    return config.output.output_dir / resolve_model(config).key / config.output.run_name


def newest_checkpoint(config: Config) -> Path | None:
    """The last checkpoint of the configured run, or None before its first one."""
    return latest(checkpoint_folder(config))


def load_policy(config: Config, adapter: Path | None = None) -> Policy:
    """The configured policy, with the weights of ``adapter`` if given."""
    policy = Policy.load(resolve_model(config).path, config.model, seed=config.training.seed, adapter=adapter)
    fit_threads(policy)
    return policy


def make_engine(config: Config, policy: Policy) -> Engine:
    """The engine that samples workflows: the trainer's own weights, or a vLLM server with ``--enable-lora``."""
    if config.generation.engine == "vllm":
        adapters = checkpoint_folder(config) / "adapters"
        engine = VLLMEngine(config.engine, resolve_model(config).path, adapters, policy.tokenizer)
        engine.check()
        return engine
    return LocalEngine(policy, policy.tokenizer)


def prompt_builder(config: Config) -> Callable[[Question, Sequence[Example]], Prompt]:
    """Layer 1 for one question, with examples; switched off, the problem alone. Raises ``ConfigError``."""
    workflow = config.workflow
    guidance = load_guidance(workflow.guidance) if workflow.guidance else DEFAULT_GUIDANCE

    def build(question: Question, examples: Sequence[Example]) -> Prompt:
        if not workflow.layer1:
            return bare_prompt(question)
        return build_prompt(question, operators=workflow.operators, examples=examples, guidance=guidance)

    return build


def author_of(config: Config, policy: Policy, engine: Engine, version: int) -> Trained:
    """The policy as it writes workflows for an evaluation: without examples from the buffer."""
    prompt = prompt_builder(config)
    return Trained(policy, engine, lambda question: prompt(question, ()), config, version)


def load_author(config: Config, adapter: Path | None) -> Trained:
    """The policy with the weights of ``adapter``, ready to write workflows; None for those it came with."""
    policy = load_policy(config, adapter)
    return author_of(config, policy, make_engine(config, policy), step_of(adapter) if adapter else 0)
