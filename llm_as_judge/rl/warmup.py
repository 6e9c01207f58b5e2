"""Cold start: supervised training on workflows before GRPO, for policies that write few valid ones.

It uses the forward passes of the policy update, shared prefixes and ranks included. The loss is the mean negative
log-likelihood of the replies' tokens. Nothing is sampled, and there are no rewards.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from llm_as_judge.config.schema import TrainingConfig, WarmupConfig
from llm_as_judge.errors import DataError
from llm_as_judge.policy.exactness import CheckedLayout
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import PLAIN
from llm_as_judge.rl.ranks import ALONE, Ranks, spread
from llm_as_judge.rl.update import SharedAdamW
from llm_as_judge.types import Completion

#: Learning rate of the last step as a share of the peak; it falls linearly.
LAST_RATE = 0.08
_RISE = 3  # steps until the peak


@dataclass(frozen=True, slots=True)
class _Work:
    """Replies as they are sent to all ranks; ``shares[rank]`` are those of a rank."""

    shares: Sequence[Sequence[Completion]]
    tokens: int  # over all shares
    learn: bool


def rate(config: WarmupConfig, steps: int) -> float:
    """Learning rate after ``steps``."""
    return config.sft_learning_rate * min(1.0, (steps + 1) / _RISE) * max(LAST_RATE, 1 - steps / config.sft_steps)


class WarmUp:
    """Owner of the optimiser. Rank 0 calls ``optimizer.share``, ``step`` and ``loss``, other ``ranks`` ``follow``."""

    def __init__(self, policy: Policy, config: WarmupConfig, training: TrainingConfig, ranks: Ranks = ALONE) -> None:
        self.policy, self.config, self.training, self.ranks = policy, config, training, ranks
        self.optimizer = SharedAdamW(policy, ranks, config.sft_learning_rate, weight_decay=0.01)
        self._layout = CheckedLayout(policy, training.shared_prefix, training.micro_batch_tokens)

    def step(self, replies: Sequence[Completion]) -> float:
        """One optimiser step on prompt and token ids of ``replies``; returns the loss before it in nats per token.

        Raises ``DataError`` if the gradient is not finite.
        """
        return self._share(replies, learn=True)

    def loss(self, replies: Sequence[Completion]) -> float:
        """Mean loss of ``replies`` in nats per token, without learning."""
        return self._share(replies, learn=False)

    def follow(self) -> None:
        """Takes part in the steps of rank 0 until the end of the run. Raises what ``step`` raises."""
        self.optimizer.follow(self._work)

    @property
    def steps(self) -> int:
        return self.optimizer.steps

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""
        return rate(self.config, self.steps)

    def _share(self, replies: Sequence[Completion], *, learn: bool) -> float:
        shares = [[replies[i] for i in share] for share in spread(replies, self.ranks.size)]
        work = _Work(shares, sum(len(reply.token_ids) for reply in replies), learn)
        self.ranks.tell(work)
        return self._work(work)

    def _work(self, work: _Work) -> float:
        """A step or a loss, on every rank."""
        if not work.learn:
            with torch.no_grad():
                return self._loss(work)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss(work)
        norm = self.optimizer.clipped_step(self.learning_rate, self.training.max_grad_norm)
        step = f"warm-up step {self.steps}"
        if not math.isfinite(norm):
            raise DataError(f"after {step}: the gradient is {norm}; lower warmup.sft_learning_rate")
        self.ranks.compare(f"{step}: the adapter", self.optimizer.weights)
        return loss

    def _loss(self, work: _Work) -> float:
        """Loss over all ranks; adds the gradient of this rank's share if ``work`` is for learning."""
        replies, total = work.shares[self.ranks.rank], torch.zeros(1, dtype=torch.float64)
        with self.ranks.together():
            if replies:
                layout, budget = self._layout(replies, PLAIN), self.training.micro_batch_tokens
                for _, scores in self.policy.micro_batches(replies, PLAIN, layout, budget):
                    loss = -(scores.logprobs * scores.mask).sum() / work.tokens
                    if work.learn:
                        loss.backward()  # type: ignore[no-untyped-call]
                    total += float(loss.detach())
        return float(self.ranks.add_up(total))
