"""What the processes of ``torchrun -m llm_as_judge train`` do but rank 0: load the same policy and share its updates.

They read no configuration (rank 0 tells them its own), print nothing, and end when rank 0 does. Ctrl-C and SIGTERM are
rank 0's to answer, which saves first.
"""

from __future__ import annotations

import logging
import signal
import warnings

from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, LLMAsJudgeError
from llm_as_judge.evaluation.evaluate import PolicyAuthor
from llm_as_judge.rl.ranks import RankLost, Ranks, Team, join
from llm_as_judge.rl.update import Updater
from llm_as_judge.runs.policy import load_author, load_policy


def load_together(config: Config, ranks: Ranks) -> PolicyAuthor:
    """Rank 0's policy; the others load theirs meanwhile. Raises ``ConfigError`` for a device that is rank 0's alone."""
    device = config.model.device
    if ranks.size > 1 and device not in ("auto", "cpu", "cuda"):
        raise ConfigError(
            f"model.device={device!r} with {ranks.size} processes: each takes a GPU by its LOCAL_RANK; use auto, "
            "cuda or cpu, and CUDA_VISIBLE_DEVICES to choose among GPUs"
        )
    ranks.tell(config)
    with ranks.together():
        return load_author(config)


def follow() -> None:
    """Returns when rank 0 has ended the run, for whatever reason. Raises ``RankLost`` where it is gone."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the launcher may give up before all have come
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    with join() as ranks:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        try:
            _work(ranks)
        except RankLost:
            raise
        except LLMAsJudgeError:  # rank 0 was told, and tells the user
            return


def _work(ranks: Ranks) -> None:
    config: Config | None = ranks.hear()
    if config is None:
        return
    with ranks.together():
        device = "cpu" if config.model.device == "cpu" or not isinstance(ranks, Team) else str(ranks.device)
        model = config.model.model_copy(update={"device": device})
        policy = load_policy(config.model_copy(update={"model": model}))
    Updater(policy, config.training, ranks).follow()
