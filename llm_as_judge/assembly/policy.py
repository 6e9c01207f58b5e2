"""The policy of a run, ready to write workflows: weights, sampling engine and prompt."""

import hashlib
from pathlib import Path

from llm_as_judge.assembly.problems import Problems
from llm_as_judge.assembly.progress import SILENT, Progress
from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.evaluate import PolicyAuthor
from llm_as_judge.evaluation.written import Written, look_at
from llm_as_judge.policy.chat import Encoder
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.thinking import ThinkingEngine
from llm_as_judge.policy.tinker import TinkerPolicy
from llm_as_judge.policy.vllm import VLLMEngine
from llm_as_judge.policy.vllm_server import OwnServer, command
from llm_as_judge.rl.checkpoint import latest, step_of
from llm_as_judge.rl.ranks import Ranks
from llm_as_judge.rl.rollout import Engine
from llm_as_judge.rl.tinker import TinkerLearner
from llm_as_judge.rl.update import Learner, Updater
from llm_as_judge.workflow.prompt import Layer1


def checkpoint_folder(config: Config) -> Path:
    return config.output.output_dir / config.base_model.key / config.output.run_name


def newest_checkpoint(config: Config) -> Path | None:
    """Find the last checkpoint of the configured run; None before the first."""
    return latest(checkpoint_folder(config))


def newest_adapter(config: Config, *, needed: bool = False) -> Path | None:
    """Find the run's last checkpoint. Raises ``ConfigError`` without one, if it is needed or the user named the run."""
    newest, output = newest_checkpoint(config), config.output
    if newest is None and (needed or "output.run_name" in config._given):
        runs = sorted({"/".join(step.parts[-3:-1]) for step in output.output_dir.glob("*/*/step_*")})
        named = "name one of these with --set output.run_name=NAME (and --model)" if runs else "train first"
        raise ConfigError(
            f"no checkpoint of the run {config.base_model.key}/{output.run_name}; runs in {output.output_dir}: "
            f"{', '.join(runs) or 'none'}; {named}, or give --checkpoint DIR{'' if needed else ' or --untrained'}"
        )
    return newest


def adapter_digest(folder: Path | None) -> str | None:
    """Compute the SHA-256 of an adapter's weights, which uniquely identifies the adapter. None without one."""
    digest = hashlib.sha256()
    for file in sorted([*folder.glob("adapter_model.*"), *folder.glob("tinker.json")]) if folder else ():
        digest.update(file.read_bytes())
    return digest.hexdigest() if folder else None


def load_policy(config: Config, adapter: Path | None = None) -> Policy:
    """Load the configured policy with the weights of ``adapter`` (default: a new adapter, or ``model.adapter``, of
    which a folder of checkpoints, as a warm-up writes it, stands for the newest).
    """
    return Policy.load(config.base_model.path, start_of(config).model, seed=config.training.seed, adapter=adapter)


def start_of(config: Config) -> Config:
    """Return ``config`` with the newest checkpoint instead of a folder of checkpoints as ``model.adapter``."""
    start = config.model.adapter
    if start and not (start / "adapter_config.json").exists() and (newest := latest(start)):
        return config.model_copy(update={"model": config.model.model_copy(update={"adapter": newest})})
    return config


def load_author(
    config: Config, adapter: Path | None = None, policy: Policy | None = None, progress: Progress = SILENT
) -> PolicyAuthor:
    """Load the policy, or take the given one, with engine and prompt; the engine stops a vLLM server it started."""
    base = config.base_model.path
    prompt = Layer1(config.workflow, config.data.domains, config.choices)
    if config.generation.engine == "tinker":
        progress.say(f"policy: {base} on {config.engine.base_url}")
        served = TinkerPolicy(start_of(config), adapter, progress.say)
        return _author(served, served, prompt, config, adapter)
    if policy is None:
        progress.say(f"loading the policy {base}")
        policy = load_policy(config, adapter)
    dtype = str(policy.base.dtype).removeprefix("torch.")
    trained, whole = (policy.base.num_parameters(only_trainable=only) / 1e6 for only in (True, False))
    size = f"{whole:,.1f} million parameters in {dtype} on {policy.device}, {trained:.2f} million of them trained"
    progress.say(f"policy: {size}")
    engine: Engine
    if config.generation.engine == "vllm":
        own = None
        if not config.engine.base_url:
            log = config.output.log_dir / config.base_model.key / "policy_server.log"
            progress.say(f"starting vLLM, which takes up to some minutes; its log: {log}")
            shaped = config.model_copy(update={"model": policy.config})  # the adapter's rank
            words = command(shaped, locate_weights(base), base, dtype)
            own = OwnServer(config.engine, words, str(policy.device), log)
        address = own.config if own else config.engine
        engine = VLLMEngine(address, base, checkpoint_folder(config) / "adapters", policy.tokenizer, own=own)
        engine.check()
    else:
        engine = LocalEngine(policy, policy.tokenizer)
    return _author(policy, engine, prompt, config, adapter)


def _author(policy: Encoder, engine: Engine, prompt: Layer1, config: Config, adapter: Path | None) -> PolicyAuthor:
    if config.generation.thinking:
        policy.thinking = True
        engine = ThinkingEngine(engine, policy.tokenizer, config.generation.thinking_tokens)
    if config.workflow.repairs:
        _ = policy.user_turn  # refused now, not after the first batch
    return PolicyAuthor(policy, engine, prompt, config, step_of(adapter) if adapter else 0)


def make_learner(author: PolicyAuthor, ranks: Ranks) -> Learner:
    if isinstance(author.policy, TinkerPolicy):
        return TinkerLearner(author.policy)
    assert isinstance(author.policy, Policy)
    return Updater(author.policy, author.config.training, ranks)


def probe_policy(author: PolicyAuthor, problems: Problems) -> Written:
    """Look at what ``author`` writes for four training problems per domain; the sampler does not advance."""
    return look_at(author, [problem.question for problem in problems.sampler.peek(4)], samples=2)
