"""The policy of a run, ready to write workflows: its weights, the engine that samples from it, what it is told."""

from __future__ import annotations

import hashlib
from pathlib import Path

from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import Config, ModelConfig
from llm_as_judge.evaluation.evaluate import PolicyAuthor
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.vllm import VLLMEngine
from llm_as_judge.policy.vllm_server import OwnServer
from llm_as_judge.rl.checkpoint import latest, step_of
from llm_as_judge.rl.rollout import Engine
from llm_as_judge.workflow.prompt import Layer1


def checkpoint_folder(config: Config) -> Path:
    """Where the configured run's checkpoints are."""
    return config.output.output_dir / config.base_model.key / config.output.run_name


def newest_checkpoint(config: Config) -> Path | None:
    """The last checkpoint of the configured run, or None before its first one."""
    return latest(checkpoint_folder(config))


def adapter_digest(folder: Path | None) -> str | None:
    """SHA-256 of an adapter's weights, which tells it from every other; None for none."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("adapter_model.*")) if folder else ():
        digest.update(file.read_bytes())
    return digest.hexdigest() if folder else None


def load_policy(config: Config, adapter: Path | None = None) -> Policy:
    """The configured policy, with the weights of ``adapter`` or those it came with."""
    return Policy.load(config.base_model.path, _start(config.model), seed=config.training.seed, adapter=adapter)


def load_author(config: Config, adapter: Path | None = None, policy: Policy | None = None) -> PolicyAuthor:
    """The same, unless ``policy`` is it, with its engine and its prompt. A vLLM server that is started for it lives as
    long as the engine.
    """
    policy, base = policy or load_policy(config, adapter), config.base_model.path
    engine: Engine
    if config.generation.engine == "vllm":
        own = None if config.engine.base_url else _own_server(config, policy)
        address = own.config if own else config.engine
        engine = VLLMEngine(address, base, checkpoint_folder(config) / "adapters", policy.tokenizer, own=own)
        engine.check()
    else:
        engine = LocalEngine(policy, policy.tokenizer)
    return PolicyAuthor(policy, engine, Layer1(config.workflow), config, step_of(adapter) if adapter else 0)


def _own_server(config: Config, policy: Policy) -> OwnServer:
    base, log = config.base_model, config.output.log_dir / config.base_model.key / "policy_server.log"
    dtype = str(policy.base.dtype).removeprefix("torch.")
    return OwnServer(config, locate_weights(base.path), base.path, dtype, str(policy.device), log)


def _start(model: ModelConfig) -> ModelConfig:
    """``model.adapter`` may be a folder of checkpoints, as a warm-up leaves it: the newest is meant."""
    folder = model.adapter
    if folder is None or (folder / "adapter_config.json").exists() or (newest := latest(folder)) is None:
        return model
    return model.model_copy(update={"adapter": newest})
