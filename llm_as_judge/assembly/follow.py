"""The other ranks of ``torchrun -m llm_as_judge train`` (or ``warmup``): they load the same policy and share updates.

They get the configuration from rank 0, print nothing and end with rank 0, which also handles Ctrl-C and SIGTERM.
"""

import logging
import signal
import warnings

from llm_as_judge.assembly.policy import load_author, load_policy
from llm_as_judge.assembly.progress import SILENT, Progress
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, LLMAsJudgeError
from llm_as_judge.evaluation.evaluate import PolicyAuthor
from llm_as_judge.policy.model import Policy
from llm_as_judge.rl.ranks import RankLost, Ranks, Team, join
from llm_as_judge.rl.update import Updater


def load_together(config: Config, ranks: Ranks, *, progress: Progress = SILENT) -> PolicyAuthor:
    """Load rank 0's policy with its engine; the others load theirs meanwhile.

    Raises ``ConfigError`` for a device that several processes cannot share.
    """
    device = config.model.device
    if ranks.size > 1 and device not in ("auto", "cpu", "cuda"):
        raise ConfigError(
            f"model.device={device!r} with {ranks.size} processes: each takes a GPU by its LOCAL_RANK; use auto, "
            "cuda or cpu, and CUDA_VISIBLE_DEVICES to choose among GPUs"
        )
    if ranks.size > 1 and config.generation.engine == "tinker":
        raise ConfigError(f"generation.engine=tinker with {ranks.size} processes: the server trains; start one process")
    ranks.tell(config)
    return load_author(config, policy=_load(config, ranks) if isinstance(ranks, Team) else None, progress=progress)


def _load(config: Config, ranks: Team) -> Policy:
    """Load this rank's policy on its own device."""
    device = "cpu" if config.model.device == "cpu" else str(ranks.device)
    model = config.model.model_copy(update={"device": device})
    with ranks.together():
        return load_policy(config.model_copy(update={"model": model}))


def follow() -> None:
    """Return when rank 0 has ended the run. Raises ``RankLost`` if rank 0 is gone."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the launcher may stop before all ranks have joined
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    with join() as ranks:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        config: Config | None = ranks.hear()
        if config is None or not isinstance(ranks, Team):
            return
        try:
            Updater(_load(config, ranks), config.training, ranks).follow()
        except RankLost:
            raise
        except LLMAsJudgeError:  # rank 0 reports it
            return
