"""The gradient side of a step: one judged batch in, the policy's weights moved, means over its tokens out.

Log-probs, loss, clipping, warm-up and AdamW over ``ppo_epochs`` passes in micro-batches. What the rollouts are
worth is decided before, checkpoints are written after (``rl.trainer``). It never awaits, so no other task sees
weights half way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from llm_as_judge.errors import LLMAsJudgeError
from llm_as_judge.rl.advantage import Advantages
from llm_as_judge.rl.loss import LossInputs, LossOutputs, LossSettings, Normaliser, policy_loss
from llm_as_judge.rl.policy import Policy, Sampling, TokenScores
from llm_as_judge.rl.settings import TrainerSettings
from llm_as_judge.types import Completion, Rollout


class TrainingStopped(LLMAsJudgeError):
    """Going on would waste the run: the policy collapsed or the gradient is not finite."""


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """Means over the trained tokens of one batch, all epochs together; loss and gradient norm of the last
    epoch.
    """

    loss: float = 0.0
    kl: float = math.nan
    entropy: float = math.nan
    clip_fraction: float = 0.0
    grad_norm: float = 0.0


@dataclass(slots=True)
class _MicroBatch:
    """What is forwarded together, and what the first epoch leaves for the later ones."""

    completions: list[Completion]
    advantages: Tensor  # [B]
    old: Tensor | None  # [B, T]; None until the first epoch's scores stand in
    reference: Tensor | None = None  # [B, T], where beta > 0


class Updater:
    """Owns the optimiser. ``updates`` (optimiser steps so far, for the warm-up) and ``optimizer`` belong in a
    checkpoint.

    ``unsettled`` is True from the first optimiser step of an ``update`` until ``settle``: meanwhile the weights
    are not those of the last finished step.
    """

    def __init__(self, policy: Policy, settings: TrainerSettings) -> None:
        self.policy = policy
        self.settings = settings
        self.updates = 0
        self.unsettled = False
        self._parameters = policy.trainable_parameters()
        self.optimizer = torch.optim.AdamW(
            self._parameters, lr=settings.learning_rate, betas=(0.9, 0.99), weight_decay=settings.weight_decay
        )
        self._sampling = Sampling(settings.temperature, settings.top_p, settings.top_k)
        self._loss = LossSettings(
            settings.loss_type,
            settings.epsilon,
            settings.epsilon_high,
            settings.beta,
            settings.response_max_length,
        )
        shared = settings.shared_prefix
        if shared is None:
            shared = policy.device.type == "cpu" and not policy.settings.gradient_checkpointing
        self._shared_prefix = shared

    @property
    def learning_rate(self) -> float:
        """The rate of the last optimiser step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def settle(self) -> None:
        """The step that the update belongs to is finished."""
        self.unsettled = False

    def update(
        self, rollouts: Sequence[Rollout], rewards: Tensor, advantages: Advantages, version: int
    ) -> UpdateReport:
        """``ppo_epochs`` optimiser steps, each over the whole batch in micro-batches.

        ``rewards`` [N] with NaN = unscored; ``version`` is that of the present weights and, being the number of
        finished steps, tells the temperature that the completions were sampled at. Raises
        ``TrainingStopped`` where the gradient is not finite.
        """
        settings = self.settings
        self._sampling = Sampling(settings.temperature_at(version), settings.top_p, settings.top_k)
        scored = ~torch.isnan(rewards)
        lengths = torch.tensor([len(r.completion.token_ids) for r in rollouts])
        normaliser = Normaliser(int(scored.sum()), int(lengths[scored].sum()))
        # Without a KL term a rollout without advantage has no gradient: it counts in the normaliser and is
        # not forwarded.
        trained = scored if settings.beta else scored & (advantages.values != 0)
        chosen = torch.nonzero(trained)[:, 0].tolist()
        if not chosen:
            return UpdateReport()
        batches = self._micro_batches(rollouts, advantages, chosen, version)
        tokens, clipped, kl, entropy, loss, norm = 0, 0.0, 0.0, 0.0, 0.0, 0.0
        for _ in range(settings.ppo_epochs):
            self.optimizer.zero_grad(set_to_none=True)
            loss = 0.0
            for batch in batches:
                out = self._backward(batch, normaliser)
                tokens, loss = tokens + out.tokens, loss + out.loss.item()
                clipped += out.clipped_low + out.clipped_high
                kl, entropy = kl + out.kl, entropy + out.entropy
            norm = self._optimizer_step(version)
        self.optimizer.zero_grad(set_to_none=True)
        return UpdateReport(loss, kl / tokens if settings.beta else math.nan, entropy / tokens, clipped / tokens, norm)

    def _micro_batches(
        self, rollouts: Sequence[Rollout], advantages: Advantages, chosen: Sequence[int], version: int
    ) -> list[_MicroBatch]:
        size = self.settings.micro_batch_size
        batches = []
        for start in range(0, len(chosen), size):
            rows = chosen[start : start + size]
            completions = [rollouts[i].completion for i in rows]
            old = self.behaviour_logprobs(completions, version)
            batches.append(_MicroBatch(completions, advantages.values[rows], old))
        return batches

    def behaviour_logprobs(self, completions: Sequence[Completion], version: int) -> Tensor | None:
        """None where the present weights sampled all of them (their first-epoch scores are the old ones),
        else as sampled [B, T].
        """
        if all(c.policy_version == version for c in completions):
            return None
        rows = [torch.tensor(c.logprobs) for c in completions]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(self.policy.device)

    def _backward(self, batch: _MicroBatch, normaliser: Normaliser) -> LossOutputs:
        """Adds the micro-batch's gradient."""
        scores = self._score(batch)
        if self.settings.beta and batch.reference is None:
            batch.reference = self._score(batch, reference=True).logprobs
        inputs = LossInputs(
            scores.logprobs,
            batch.advantages.to(scores.logprobs),
            scores.mask,
            batch.old,
            batch.reference,
            scores.entropy,
        )
        out = policy_loss(inputs, self._loss, normaliser)
        out.loss.backward()  # type: ignore[no-untyped-call]
        if batch.old is None:
            batch.old = scores.logprobs.detach()
        return out

    def _score(self, batch: _MicroBatch, reference: bool = False) -> TokenScores:
        return self.policy.logprobs(
            batch.completions, self._sampling, reference=reference, shared_prefix=self._shared_prefix
        )

    def _optimizer_step(self, version: int) -> float:
        """Clips and steps; returns the gradient norm before clipping."""
        settings = self.settings
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, settings.max_grad_norm))
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise TrainingStopped(
                f"step {version + 1}: gradient norm is {norm}; lower training.learning_rate "
                f"({settings.learning_rate}) or use model.dtype=float32"
            )
        self.unsettled = True
        for group in self.optimizer.param_groups:
            group["lr"] = self._warmed_up_rate()
        self.optimizer.step()
        self.updates += 1
        return norm

    def _warmed_up_rate(self) -> float:
        share = 1.0 if not self.settings.warmup_steps else min(1.0, (self.updates + 1) / self.settings.warmup_steps)
        return self.settings.learning_rate * share
