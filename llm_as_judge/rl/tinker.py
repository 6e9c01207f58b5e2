"""Learning of a policy on a server of the Tinker API (``policy.tinker``), which knows nothing but advantages of tokens.

Loss, clipping, KL term, importance weights and divisor are folded into these (``rl.loss.folded``), by the current
log-probs that the server is asked for before every step. So each step is that of ``rl.update``, also in later epochs.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from llm_as_judge.config.schema import TrainingConfig, WarmupConfig
from llm_as_judge.errors import DataError
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.tinker import TinkerPolicy
from llm_as_judge.rl.credit import CreditedGroup
from llm_as_judge.rl.loss import folded
from llm_as_judge.rl.update import Batch, TrainingStopped, UpdateReport, inputs_of
from llm_as_judge.rl.warmup import rate
from llm_as_judge.types import Completion


class TinkerLearner:
    """A ``Learner``, and the warm-up of a policy: its gradient is that of equal advantages.

    Reports have no entropy, and a gradient norm only if the server reports one.
    """

    def __init__(self, policy: Any, config: TrainingConfig, warm_up: WarmupConfig) -> None:
        assert isinstance(policy, TinkerPolicy)
        self.optimizer, self.config, self.warm_up, self.unsettled = policy, config, warm_up, False

    def update(self, groups: Sequence[CreditedGroup], sampling: Sampling, version: int) -> UpdateReport:
        """As ``Learner.update``; also raises ``ProviderError``."""
        policy, config, batch = self.optimizer, self.config, Batch.of(groups, version, self.config)
        completions, sums, loss, norm = [row.completion for row in batch.rows], [0.0] * 4, 0.0, 0.0
        if not completions:
            return UpdateReport()
        if config.beta:
            for row, reference in zip(batch.rows, policy.reference(completions), strict=True):
                row.reference = reference
        for _ in range(config.ppo_epochs):
            current, mask = policy.logprobs(completions), _padded([torch.tensor(c.sampled) for c in completions])
            inputs = inputs_of(batch.rows, _padded(current), mask)
            advantages, out = folded(inputs, batch.config, batch.normaliser)
            rise = min(1.0, (policy.steps + 1) / max(1, config.warmup_steps))
            if advantages.isfinite().all():  # NaN would destroy the adapter on the server
                self.unsettled = True
                found = policy.step(
                    completions, current, advantages, learning_rate=config.learning_rate * rise,
                    clip=config.max_grad_norm, weight_decay=config.weight_decay,
                )  # fmt: skip
                norm = 0.0 if found is None else found
            else:
                norm = math.nan
            if not math.isfinite(norm):
                raise TrainingStopped(f"step {version + 1}: gradient norm is {norm}; lower training.learning_rate")
            loss = float(out.loss)
            sums = [a + b for a, b in zip(sums, (out.tokens, out.kl, out.clipped, out.corrected), strict=True)]
        kl, clipped, corrected = (total / sums[0] for total in sums[1:])
        return UpdateReport(loss, kl if config.beta else math.nan, math.nan, clipped, norm, corrected)

    def step(self, replies: Sequence[Completion]) -> float:
        """As ``WarmUp.step``."""
        policy, current = self.optimizer, self.optimizer.logprobs(replies)
        weight = _padded([torch.ones(len(own)) for own in current]) / sum(map(len, current))
        limit, speed = self.config.max_grad_norm, rate(self.warm_up, policy.steps)
        norm = policy.step(replies, current, weight, learning_rate=speed, clip=limit, weight_decay=0.01)
        if norm is not None and not math.isfinite(norm):
            raise DataError(f"after step {policy.steps}: the gradient is {norm}; lower warmup.sft_learning_rate")
        return -float(torch.cat(current).mean())

    def loss(self, replies: Sequence[Completion]) -> float:
        """As ``WarmUp.loss``."""
        return -float(torch.cat(self.optimizer.logprobs(replies)).mean())

    @property
    def steps(self) -> int:
        return self.optimizer.steps


def _padded(rows: Sequence[Tensor]) -> Tensor:
    return pad_sequence(list(rows), batch_first=True)
