"""The other ranks of ``torchrun -m llm_as_judge train`` (or ``warmup``): they load the same policy and share updates.

They get the configuration from rank 0, print nothing and end with rank 0, which also handles Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import logging
import signal
import warnings
from dataclasses import dataclass

from llm_as_judge.assembly.policy import load_author, load_policy
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, LLMAsJudgeError
from llm_as_judge.evaluation.evaluate import PolicyAuthor
from llm_as_judge.policy.model import Policy
from llm_as_judge.rl.ranks import RankLost, Ranks, Team, join
from llm_as_judge.rl.sharding import shard
from llm_as_judge.rl.update import Updater
from llm_as_judge.rl.warmup import WarmUp


@dataclass(frozen=True, slots=True)
class _Job:
    config: Config
    warm_up: bool


def load_together(config: Config, ranks: Ranks, *, warm_up: bool = False) -> PolicyAuthor:
    """Rank 0's policy with its engine; the others load theirs meanwhile, for training or a warm-up.

    Raises ``ConfigError`` for settings that several processes, or a sharded base, do not allow.
    """
    if warm_up and config.training.shard_base:
        raise ConfigError("a warm-up looks at what the whole policy writes: --set training.shard_base=false")
    _refuse(config, ranks)
    ranks.tell(_Job(config, warm_up))
    return load_author(config, policy=_load(config, ranks) if ranks.size > 1 else None)


def _refuse(config: Config, ranks: Ranks) -> None:
    device, buffer = config.model.device, config.experience_buffer
    if ranks.size > 1 and device not in ("auto", "cpu", "cuda"):
        raise ConfigError(
            f"model.device={device!r} with {ranks.size} processes: each takes a GPU by its LOCAL_RANK; use auto, "
            "cuda or cpu, and CUDA_VISIBLE_DEVICES to choose among GPUs"
        )
    if not config.training.shard_base:
        return
    # What rank 0 would do by itself with weights of which it has a part.
    if ranks.size == 1:
        raise ConfigError(
            "training.shard_base spreads the base over processes; start several: torchrun (docs/scale.md)"
        )
    if config.generation.engine != "vllm":
        raise ConfigError("training.shard_base: no process holds the whole base; set generation.engine=vllm")
    if buffer.enabled and buffer.embedder == "policy":
        raise ConfigError(
            "training.shard_base: the policy cannot embed problems; set experience_buffer.embedder to a "
            "sentence-transformers model, or experience_buffer.enabled=false"
        )


def _load(config: Config, ranks: Ranks) -> Policy:
    """This rank's policy, on its own device."""
    assert isinstance(ranks, Team)
    device = "cpu" if config.model.device == "cpu" else str(ranks.device)
    sharded = config.training.shard_base
    on = {"device": "cpu" if sharded else device}
    if sharded and config.model.dtype == "auto" and device != "cpu":
        on["dtype"] = "bfloat16"
    with ranks.together():
        policy = load_policy(config.model_copy(update={"model": config.model.model_copy(update=on)}))
    if sharded:
        with ranks.together(tied=True):
            shard(policy, device, ranks.size)
    return policy


def follow() -> None:
    """Return when rank 0 has ended the run. Raises ``RankLost`` if rank 0 is gone."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the launcher may stop before all ranks have joined
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    with join() as ranks:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        try:
            _work(ranks)
        except RankLost:
            raise
        except LLMAsJudgeError:  # rank 0 reports it
            return


def _work(ranks: Ranks) -> None:
    job: _Job | None = ranks.hear()
    if job is None:
        return
    config, policy = job.config, _load(job.config, ranks)
    if job.warm_up:
        WarmUp(policy, config.warmup, config.training, ranks).follow()
    else:
        Updater(policy, config.training, ranks).follow()
