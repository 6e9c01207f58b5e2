"""Learning of a policy on a server of the Tinker API (``policy.tinker``), which knows nothing but advantages of tokens.

Loss, clipping, KL term, importance weights and divisor are folded into these (``rl.loss.folded``), by the current
log-probs that the server is asked for before every step. So each step is that of ``rl.update``, also in later epochs.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.tinker import TinkerPolicy
from llm_as_judge.rl.loss import folded
from llm_as_judge.rl.update import Batch, TrainingStopped, UpdateReport, inputs_of, rise_of
from llm_as_judge.types import Completion


class TinkerLearner:
    """A ``Learner``; its reports have no entropy, and a gradient norm only if the server reports one."""

    def __init__(self, policy: TinkerPolicy) -> None:
        self.optimizer, self.unsettled = policy, False

    def update(self, batch: Batch, sampling: Sampling, version: int) -> UpdateReport:
        """Update as ``Learner.update``; also raises ``ProviderError``."""
        policy, config, completions = self.optimizer, batch.config, [row.completion for row in batch.rows]
        sums, loss, norm = [0.0] * 6, 0.0, None
        if not completions:
            return UpdateReport()
        if config.beta:
            for row, reference in zip(batch.rows, policy.reference(completions), strict=True):
                row.reference = reference
        for _ in range(config.ppo_epochs):
            current, sampled = policy.logprobs(completions), [torch.tensor(c.sampled) for c in completions]
            logprobs, mask = (pad_sequence(rows, batch_first=True) for rows in (current, sampled))
            advantages, out = folded(inputs_of(batch.rows, logprobs, mask), config, batch.normaliser)
            rate = config.learning_rate * rise_of(config, policy.steps)
            if finite := bool(advantages.isfinite().all()):  # NaN would destroy the adapter on the server
                self.unsettled = True
                norm = policy.step(completions, current, advantages, rate, config.max_grad_norm, config.weight_decay)
            if not (finite and math.isfinite(norm or 0.0)):
                cure = f"lower training.learning_rate ({config.learning_rate})"
                raise TrainingStopped(f"step {version + 1}: the gradient is not finite; {cure}")
            loss, totals = float(out.loss), (out.tokens, out.kl, math.nan, out.clipped, out.corrected, out.difference)
            sums = [a + b for a, b in zip(sums, totals, strict=True)]
        return UpdateReport.of(config, loss, sums, math.nan if norm is None else norm)

    def logprobs(self, completions: Sequence[Completion]) -> list[Tensor]:
        return self.optimizer.logprobs(completions)
