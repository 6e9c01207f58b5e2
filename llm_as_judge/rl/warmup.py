"""The cold start: a policy that has never seen a workflow learns to write them, supervised, before GRPO.

The same forward pass as the update's, every shared prefix once; the loss is the mean negative log-likelihood of the
replies' tokens. Nothing is sampled here and no reward plays a part.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import torch

from llm_as_judge.config.schema import TrainingConfig, WarmupConfig
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.logprobs.scoring import Layout, Sampling, choose_layout
from llm_as_judge.rl.exactness import check_exact
from llm_as_judge.rl.policy import Policy
from llm_as_judge.types import Completion

logger = logging.getLogger(__name__)

#: The rate at the last step, as a share of the first; it falls linearly.
LAST_RATE = 0.08
_RISE = 3  # steps to the first rate


class WarmUp:
    """Owns the optimiser; ``step`` moves the adapter, ``loss`` only looks."""

    def __init__(self, policy: Policy, config: WarmupConfig, training: TrainingConfig) -> None:
        self.policy, self.config, self.training = policy, config, training
        self.parameters = policy.trainable_parameters()
        self.optimizer = torch.optim.AdamW(self.parameters, lr=config.sft_learning_rate, betas=(0.9, 0.99))
        self.steps = 0
        self._sharing: bool | None = False if training.shared_prefix is False else None

    def step(self, replies: Sequence[Completion]) -> float:
        """One optimiser step on ``replies`` (prompt and token ids; log-probs are not read); the loss before it, in nats
        a token. Raises ``DataError`` where it is not finite.
        """
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._pass(replies, backward=True)
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.training.max_grad_norm))
        if not math.isfinite(norm):
            raise DataError(f"warm-up step {self.steps + 1}: the gradient is {norm}; lower warmup.sft_learning_rate")
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return loss

    def loss(self, replies: Sequence[Completion]) -> float:
        """Mean loss of ``replies`` in nats a token, without learning from them."""
        with torch.no_grad():
            return self._pass(replies, backward=False)

    @property
    def learning_rate(self) -> float:
        """Of the next step."""
        rise = min(1.0, (self.steps + 1) / _RISE)
        return self.config.sft_learning_rate * rise * max(LAST_RATE, 1 - self.steps / self.config.sft_steps)

    def _pass(self, replies: Sequence[Completion], *, backward: bool) -> float:
        tokens = sum(len(reply.token_ids) for reply in replies)
        total, layout, budget = 0.0, self._layout(replies), self.training.micro_batch_tokens
        for batch in self.policy.micro_batches(replies, Sampling(), layout, budget):
            loss = -(batch.scores.logprobs * batch.scores.mask).sum() / tokens
            if backward:
                loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        return total

    def _layout(self, replies: Sequence[Completion]) -> Layout:
        """Shared prefixes where they are worth it and exact, which is tried on the first replies of a run."""
        longest = max(len(r.prompt_ids) + len(r.token_ids) for r in replies)
        if self._sharing is False or self.policy.why_no_tree(longest) or choose_layout(replies) == "padded":
            return "padded"
        if self._sharing is None:
            try:
                with torch.enable_grad():  # a look at the loss may come first
                    check_exact(self.policy, replies, Sampling(), self.training.micro_batch_tokens)
                self._sharing = True
            except ConfigError as error:
                logger.warning("prefixes are not shared: %s", error)
                self._sharing = False
        return "tree" if self._sharing else "padded"
