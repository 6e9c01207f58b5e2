"""Cold start: supervised training on workflows before GRPO, for policies that write few valid ones.

The loss is the mean negative log-likelihood of the replies' tokens, whose gradient is that of an update in which all
advantages are 1. So any learner warms up, on ranks or a server too. Nothing is sampled, and there are no rewards.
"""

from collections.abc import Sequence

import torch

from llm_as_judge.config.schema import TrainingConfig, WarmupConfig
from llm_as_judge.policy.sampling import PLAIN
from llm_as_judge.rl.loss import Normaliser
from llm_as_judge.rl.update import Batch, Learner, Row
from llm_as_judge.types import Completion

#: Learning rate of the last step as a share of the peak; it falls linearly.
LAST_RATE = 0.08
_RISE = 3  # steps until the peak


class WarmUp:
    """Call ``learner.optimizer.share`` first, if there are several ranks or a server."""

    def __init__(self, learner: Learner, config: WarmupConfig, training: TrainingConfig) -> None:
        self.learner, self.config = learner, config
        plain = {"loss_type": "dapo", "beta": 0.0, "importance_sampling": "off", "ppo_epochs": 1, "warmup_steps": 0}
        self._training = training.model_copy(update={**plain, "weight_decay": 0.01})

    def step(self, replies: Sequence[Completion]) -> None:
        """Take one optimiser step on prompt and token ids of ``replies``. Raises ``TrainingStopped`` and what an update
        raises.
        """
        rows = [Row(reply, 1.0, None) for reply in replies]
        settings = self._training.model_copy(update={"learning_rate": self.learning_rate})
        normaliser = Normaliser(len(rows), sum(reply.written for reply in replies))
        self.learner.update(Batch(rows, normaliser, settings), PLAIN, self.steps)

    def loss(self, replies: Sequence[Completion]) -> float:
        """Compute the mean loss of ``replies`` in nats per token, without learning."""
        return -float(torch.cat(self.learner.logprobs(replies)).mean())

    @property
    def steps(self) -> int:
        return self.learner.optimizer.steps

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""
        rise = min(1.0, (self.steps + 1) / _RISE)
        return self.config.sft_learning_rate * rise * max(LAST_RATE, 1 - self.steps / self.config.sft_steps)
