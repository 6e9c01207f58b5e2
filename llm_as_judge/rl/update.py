"""Policy update of one step: ``ppo_epochs`` optimiser steps on a batch of credited groups.

Scores log-probs in micro-batches, computes the loss, clips gradients and steps AdamW. It is synchronous, so no other
task sees partly updated weights.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import send_to_device
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from llm_as_judge.config.schema import TrainingConfig
from llm_as_judge.errors import LLMAsJudgeError
from llm_as_judge.policy.exactness import CheckedLayout
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.scoring import Layout, TokenScores
from llm_as_judge.rl.credit import CreditedGroup
from llm_as_judge.rl.loss import LossInputs, LossOutputs, Normaliser, policy_loss
from llm_as_judge.rl.ranks import ALONE, Ranks, add_up_gradients, spread
from llm_as_judge.types import Completion


class TrainingStopped(LLMAsJudgeError):
    """The run would be wasted: the policy collapsed or the gradient is not finite."""


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """Means over the trained tokens of one batch and all epochs; loss and gradient norm are those of the last epoch."""

    loss: float = 0.0
    kl: float = math.nan
    entropy: float = math.nan
    clip_fraction: float = 0.0
    grad_norm: float = 0.0
    corrected: float = 0.0  # share of tokens whose importance weight was truncated or masked


class SharedAdamW(torch.optim.AdamW):
    """AdamW with equal steps on all ranks. Rank 0 calls ``share``, then sends work through ``ranks``; the others
    ``follow``.

    ``steps`` counts optimiser steps; it belongs in a checkpoint together with ``state_dict``.
    """

    def __init__(self, policy: Policy, ranks: Ranks, learning_rate: float, weight_decay: float) -> None:
        self.weights = policy.trainable_parameters()
        self.ranks, self.steps = ranks, 0
        super().__init__(self.weights, lr=learning_rate, betas=(0.9, 0.99), weight_decay=weight_decay)

    def clipped_step(self, learning_rate: float, max_norm: float) -> float:
        """Sums the gradients over ranks, clips them and takes a step; returns the norm before clipping.

        If the norm is not finite, no step is taken.
        """
        add_up_gradients(self.ranks, self.weights)
        norm = float(torch.nn.utils.clip_grad_norm_(self.weights, max_norm))
        if math.isfinite(norm):
            for group in self.param_groups:
                group["lr"] = learning_rate
            self.step()
            self.steps += 1
        self.zero_grad(set_to_none=True)
        return norm

    def share(self) -> None:
        """Sends weights and state to all ranks. Call it before the first work."""
        if self.ranks.size > 1:
            weights = [weight.detach().cpu() for weight in self.weights]
            state: Any = send_to_device(self.state_dict(), "cpu")
            self.ranks.tell((weights, state, self.steps))

    def follow(self, work: Callable[[Any], object]) -> None:
        """Does the ``work`` that rank 0 sends until the end of the run."""
        while (message := self.ranks.hear()) is not None:
            if isinstance(message, tuple):  # of ``share``
                weights, state, self.steps = message
                with torch.no_grad():
                    for weight, sent in zip(self.weights, weights, strict=True):
                        weight.copy_(sent)
                self.load_state_dict(state)
            else:
                work(message)


@dataclass(slots=True)
class _Row:
    """A completion in the update, and the log-probs that later epochs need."""

    completion: Completion
    advantage: float
    old: Tensor | None  # [T] log-probs in the ratio's denominator; None until the first epoch fills them in
    reference: Tensor | None = None  # [T], if beta > 0


@dataclass(frozen=True, slots=True)
class _Work:
    """An update as it is sent to all ranks; ``shares[rank]`` are the rows of a rank."""

    shares: Sequence[Sequence[_Row]]
    normaliser: Normaliser
    sampling: Sampling
    version: int
    config: TrainingConfig


class Updater:
    """Owner of the optimiser. Rank 0 calls ``optimizer.share`` and ``update``, other ``ranks`` ``follow``.

    ``unsettled`` is True from the first optimiser step of an ``update`` until the caller resets it: meanwhile the
    weights are not those of the last finished step.
    """

    def __init__(self, policy: Policy, config: TrainingConfig, ranks: Ranks = ALONE) -> None:
        self.policy, self.config, self.ranks = policy, config, ranks
        self.unsettled = False
        self.optimizer = SharedAdamW(policy, ranks, config.learning_rate, config.weight_decay)
        self.checked_layout = CheckedLayout(policy, config.shared_prefix, config.micro_batch_tokens)

    def update(self, groups: Sequence[CreditedGroup], sampling: Sampling, version: int) -> UpdateReport:
        """Trains on ``groups``, sampled from the distribution ``sampling``; ``version`` is that of the current weights.

        Every rank computes the gradient of its share, the gradients are summed, and all ranks take the same step.
        Raises ``TrainingStopped`` if the gradient is not finite, ``ConfigError`` if the first batch cannot be scored
        exactly, ``RankFailed`` or ``RankLost`` for another rank.
        """
        config = self.config
        scored = [row for credited in groups for row in _rows(credited, version)]
        unit = config.importance_sampling.partition("_")[0]
        if config.stale_policy == "truncate" and unit != "off" and any(row.old is not None for row in scored):
            # With masking, most tokens that have become likelier since would teach nothing.
            config = config.model_copy(update={"importance_sampling": f"{unit}_truncate"})
            for row in scored:
                row.old = None
        normaliser = Normaliser(len(scored), sum(row.completion.written for row in scored))
        # Without a KL term, a rollout with advantage 0 has no gradient: it counts in the normaliser only.
        trained = scored if config.beta else [row for row in scored if row.advantage]
        if not trained:
            return UpdateReport()
        shares = spread([row.completion for row in trained], self.ranks.size)
        work = _Work([[trained[i] for i in share] for share in shares], normaliser, sampling, version, config)
        self.ranks.tell(work)
        return self._update(work)

    def follow(self) -> None:
        """Takes part in the updates of rank 0 until the end of the run. Raises what ``update`` raises."""
        self.optimizer.follow(self._update)

    def _update(self, work: _Work) -> UpdateReport:
        """The optimiser epochs, on every rank."""
        config, rows = work.config, work.shares[self.ranks.rank]
        with self.ranks.together():
            layout = self._prepare(rows, work.sampling)
        sums, loss, norm = torch.zeros(len(LossOutputs._fields), dtype=torch.float64), 0.0, 0.0
        for _ in range(config.ppo_epochs):
            self.optimizer.zero_grad(set_to_none=True)
            own = torch.zeros_like(sums)
            with self.ranks.together():
                for out in self._backward(rows, layout, work):
                    own = own + torch.tensor([float(out.loss), *out[1:]], dtype=torch.float64)
            epoch = self.ranks.add_up(own)
            loss, sums = float(epoch[0]), sums + epoch
            self.unsettled = True
            rise = min(1.0, (self.optimizer.steps + 1) / max(1, config.warmup_steps))  # linear, then constant
            norm = self.optimizer.clipped_step(config.learning_rate * rise, config.max_grad_norm)
            if not math.isfinite(norm):
                raise TrainingStopped(
                    f"step {work.version + 1}: gradient norm is {norm}; lower training.learning_rate "
                    f"({config.learning_rate}) or use model.dtype=float32"
                )
        self.ranks.compare(f"step {work.version + 1}: the adapter", self.optimizer.weights)
        _, tokens, *totals = sums.tolist()
        kl, entropy, clipped, corrected = (total / tokens for total in totals)
        return UpdateReport(loss, kl if config.beta else math.nan, entropy, clipped, norm, corrected)

    def _prepare(self, rows: Sequence[_Row], sampling: Sampling) -> Layout:
        """Chooses the layout of this rank's share and scores it under the KL reference."""
        if not rows:
            return "padded"
        completions = [row.completion for row in rows]
        layout = self.checked_layout(completions, sampling)
        if self.config.beta:
            budget = self.config.micro_batch_tokens
            references = self.policy.known_logprobs(completions, sampling, layout, budget, reference=True)
            for row, reference in zip(rows, references, strict=True):
                row.reference = reference
        return layout

    def _backward(self, rows: Sequence[_Row], layout: Layout, work: _Work) -> Iterator[LossOutputs]:
        """Adds the gradient of one micro-batch after the other."""
        if not rows:
            return
        completions, budget = [row.completion for row in rows], self.config.micro_batch_tokens
        for members, scores in self.policy.micro_batches(completions, work.sampling, layout, budget):
            out = self._loss(scores, [rows[i] for i in members], work)
            out.loss.backward()  # type: ignore[no-untyped-call]
            yield out._replace(loss=out.loss.detach())

    def _loss(self, scores: TokenScores, rows: Sequence[_Row], work: _Work) -> LossOutputs:
        for row, logprobs in zip(rows, scores.logprobs.detach(), strict=True):
            if row.old is None:
                row.old = logprobs[: len(row.completion.token_ids)].clone()

        def padded(values: Sequence[Tensor | None]) -> Tensor:
            """``values`` of each row as [B, T]."""
            return pad_sequence([own.to(scores.logprobs) for own in values if own is not None], batch_first=True)

        inputs = LossInputs(
            logprobs=scores.logprobs,
            advantages=scores.logprobs.new_tensor([row.advantage for row in rows]),
            mask=scores.mask,
            old_logprobs=padded([row.old for row in rows]),
            ref_logprobs=padded([row.reference for row in rows]) if self.config.beta else None,
            entropy=scores.entropy,
            sampling_logprobs=padded([torch.tensor(row.completion.logprobs) for row in rows]),
        )
        return policy_loss(inputs, work.config, work.normaliser)


def _rows(credited: CreditedGroup, version: int) -> Iterator[_Row]:
    """Scored completions of a group. For one sampled by older weights, ``old`` is its sampling log-probs."""
    for rollout, reward, advantage in zip(credited.group.rollouts, credited.rewards, credited.advantages, strict=True):
        if not math.isnan(reward):
            completion = rollout.completion
            stale = completion.policy_version != version
            yield _Row(completion, advantage, torch.tensor(completion.logprobs) if stale else None)
