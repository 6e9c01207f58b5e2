"""The cold start: a policy that has never seen a workflow learns to write them, supervised, before GRPO.

The same forward pass as the update's, every shared prefix once; the loss is the mean negative log-likelihood of the
replies' tokens. Nothing is sampled here and no reward plays a part. Several ranks share it as they share an update.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from llm_as_judge.config.schema import TrainingConfig, WarmupConfig
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.policy.exactness import check_exact
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.scoring import Layout, Sampling, choose_layout
from llm_as_judge.rl.ranks import ALONE, Ranks, add_up_gradients, share_state, spread, take_state
from llm_as_judge.types import Completion

logger = logging.getLogger(__name__)

#: The rate at the last step, as a share of the first; it falls linearly.
LAST_RATE = 0.08
_RISE = 3  # steps to the first rate


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Replies as every rank is told of them: ``shares[rank]`` are its own."""

    shares: Sequence[Sequence[Completion]]
    tokens: int  # of all of them
    learn: bool


class WarmUp:
    """Owns the optimiser; ``step`` moves the adapter, ``loss`` only looks.

    With several ``ranks`` each has one: rank 0 calls ``share_state``, ``step`` and ``loss``, the others ``follow``.
    """

    def __init__(self, policy: Policy, config: WarmupConfig, training: TrainingConfig, ranks: Ranks = ALONE) -> None:
        self.policy, self.config, self.training, self.ranks = policy, config, training, ranks
        self.parameters = policy.trainable_parameters()
        self.optimizer = torch.optim.AdamW(self.parameters, lr=config.sft_learning_rate, betas=(0.9, 0.99))
        self.steps = 0
        self._sharing: bool | None = False if training.shared_prefix is False else None

    def step(self, replies: Sequence[Completion]) -> float:
        """One optimiser step on ``replies`` (prompt and token ids; log-probs are not read); the loss before it, in nats
        a token. Raises ``DataError`` where it is not finite.
        """
        return self._told(replies, learn=True)

    def loss(self, replies: Sequence[Completion]) -> float:
        """Mean loss of ``replies`` in nats a token, without learning from them."""
        return self._told(replies, learn=False)

    def share_state(self) -> None:
        """Brings all ranks to the weights and the optimiser of this one. Call it before the first step."""
        share_state(self.ranks, self.parameters, self.optimizer, self.steps)

    def follow(self) -> None:
        """Does this rank's part of all that rank 0 tells of, until the end. Raises what ``step`` does."""
        while (told := self.ranks.hear()) is not None:
            if isinstance(told, _Pairs):
                self._work(told)
            else:
                take_state(told, self.parameters, self.optimizer)
                self.steps = told.steps

    def _told(self, replies: Sequence[Completion], *, learn: bool) -> float:
        shares = [[replies[i] for i in share] for share in spread(replies, self.ranks.size)]
        pairs = _Pairs(shares, sum(len(reply.token_ids) for reply in replies), learn)
        self.ranks.tell(pairs)
        return self._work(pairs)

    def _work(self, pairs: _Pairs) -> float:
        """As every rank does it."""
        if not pairs.learn:
            with torch.no_grad():
                return self._pass(pairs)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._pass(pairs)
        add_up_gradients(self.ranks, self.parameters)
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.training.max_grad_norm))
        if not math.isfinite(norm):
            raise DataError(f"warm-up step {self.steps + 1}: the gradient is {norm}; lower warmup.sft_learning_rate")
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        self.ranks.compare(f"warm-up step {self.steps}: the adapter", self.parameters)
        return loss

    @property
    def learning_rate(self) -> float:
        """Of the next step."""
        rise = min(1.0, (self.steps + 1) / _RISE)
        return self.config.sft_learning_rate * rise * max(LAST_RATE, 1 - self.steps / self.config.sft_steps)

    def _pass(self, pairs: _Pairs) -> float:
        replies, total = pairs.shares[self.ranks.rank], torch.zeros(1, dtype=torch.float64)
        with self.ranks.together():
            layout, budget = self._layout(replies) if replies else "padded", self.training.micro_batch_tokens
            for batch in self.policy.micro_batches(replies, Sampling(), layout, budget) if replies else ():
                loss = -(batch.scores.logprobs * batch.scores.mask).sum() / pairs.tokens
                if pairs.learn:
                    loss.backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach())
        return float(self.ranks.add_up(total))

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
