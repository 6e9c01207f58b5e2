"""The gradient side of a step: one judged batch in, the policy's weights moved, means over its tokens out.

Log-probs, loss, clipping, warm-up and AdamW over ``ppo_epochs`` passes in micro-batches. What the rollouts are
worth is decided before, checkpoints are written after (``rl.trainer``). It never awaits, so no other task sees
weights half way.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as distributed
from torch import Tensor

from llm_as_judge.errors import LLMAsJudgeError
from llm_as_judge.logprobs.scoring import Layout, choose_layout
from llm_as_judge.rl.advantage import Advantages
from llm_as_judge.rl.exactness import check_exact
from llm_as_judge.rl.loss import LossInputs, LossOutputs, LossSettings, Normaliser, policy_loss
from llm_as_judge.rl.policy import Policy, Sampling
from llm_as_judge.rl.settings import TrainerSettings
from llm_as_judge.types import Completion, Rollout

logger = logging.getLogger(__name__)


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
    corrected: float = 0.0  # share of tokens whose importance weight was truncated or masked


@dataclass(slots=True)
class _Batch:
    """What this process forwards, and what the first epoch leaves for the later ones."""

    completions: list[Completion]
    advantages: Tensor  # [B]
    old: list[Tensor | None]  # [T] each; None until the first epoch's scores stand in
    reference: list[Tensor] | None  # [T] each, where beta > 0
    layout: Layout


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
            settings.kl_estimator,
            settings.importance_sampling,
            settings.importance_sampling_cap,
        )
        self._checked = False

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
        finished steps, tells the temperature that the completions were sampled at. Where torch.distributed is
        initialised, every process is to call this with the same batch and weights: each takes its share, the
        gradients are added up, and all make the same step. Raises ``TrainingStopped`` where the gradient is not
        finite, ``ConfigError`` where prefixes cannot be shared and ``shared_prefix`` is on, or where the first
        batch does not come out as padded rows do.
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
        batch = self._batch(rollouts, advantages, _share(chosen), version)
        sums = torch.zeros(len(_SUMS), dtype=torch.float64)
        norm = 0.0
        for _ in range(settings.ppo_epochs):
            self.optimizer.zero_grad(set_to_none=True)
            before = sums
            for out in self._backward(batch, normaliser):
                sums = sums + _sums_of(out)
            loss = float(_added_up((sums - before)[:1])[0])
            norm = self._optimizer_step(version)
        self.optimizer.zero_grad(set_to_none=True)
        total = dict(zip(_SUMS, _added_up(sums).tolist(), strict=True))
        tokens = total["tokens"]
        return UpdateReport(
            loss=loss,
            kl=total["kl"] / tokens if settings.beta else math.nan,
            entropy=total["entropy"] / tokens,
            clip_fraction=(total["clipped_low"] + total["clipped_high"]) / tokens,
            grad_norm=norm,
            corrected=total["corrected"] / tokens,
        )

    def layout(self, completions: Sequence[Completion]) -> Layout:
        """How ``completions`` are forwarded. Raises ``ConfigError`` where the settings ask for what cannot be."""
        wanted = self.settings.shared_prefix
        if wanted is not None or self.policy.device.type != "cpu":
            return "tree" if wanted else "padded"
        longest = max(len(c.prompt_ids) + len(c.token_ids) for c in completions)
        return "padded" if self.policy.why_no_tree(longest) else choose_layout(completions)

    def _batch(
        self, rollouts: Sequence[Rollout], advantages: Advantages, rows: Sequence[int], version: int
    ) -> _Batch | None:
        """None where this process has no share."""
        if not rows:
            return None
        completions = [rollouts[i].completion for i in rows]
        layout = self.layout(completions)
        if layout == "tree" and not self._checked:
            found = check_exact(self.policy, completions, self._sampling, self.settings.micro_batch_tokens)
            logger.info(
                "shared prefixes: within %.1e nats of padded rows, gradient %.1e", found.logprob, found.gradient
            )
            self._checked = True
        reference = None
        if self.settings.beta:
            reference = self.policy.reference_logprobs(
                completions, self._sampling, layout, self.settings.micro_batch_tokens
            )
        # A completion of older weights is weighed against the log-probs it was sampled with.
        old = [torch.tensor(c.logprobs) if c.policy_version != version else None for c in completions]
        return _Batch(completions, advantages.values[list(rows)], old, reference, layout)

    def _backward(self, batch: _Batch | None, normaliser: Normaliser) -> Iterator[LossOutputs]:
        """Adds the gradient of one micro-batch after the other."""
        if batch is None:
            return
        parts = self.policy.parts(batch.completions, self._sampling, batch.layout, self.settings.micro_batch_tokens)
        for part in parts:
            scores, members = part.scores, part.members
            old = scores.logprobs.detach().clone()
            for row, i in enumerate(members):
                known, length = batch.old[i], len(batch.completions[i].token_ids)
                if known is None:
                    batch.old[i] = old[row, :length].clone()
                else:
                    old[row, :length] = known.to(old)
            inputs = LossInputs(
                scores.logprobs,
                batch.advantages[list(members)].to(scores.logprobs),
                scores.mask,
                old,
                None if batch.reference is None else _padded([batch.reference[i] for i in members], old),
                scores.entropy,
                _padded([torch.tensor(batch.completions[i].logprobs) for i in members], old),
            )
            out = policy_loss(inputs, self._loss, normaliser)
            out.loss.backward()  # type: ignore[no-untyped-call]
            yield out

    def _optimizer_step(self, version: int) -> float:
        """Clips and steps; returns the gradient norm before clipping."""
        settings = self.settings
        _add_up_gradients(self._parameters)
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


_SUMS = ("loss", "tokens", "clipped_low", "clipped_high", "kl", "entropy", "corrected")


def _sums_of(out: LossOutputs) -> Tensor:
    values = (torch.as_tensor(getattr(out, name)).detach() for name in _SUMS)
    return torch.tensor([float(v) for v in values], dtype=torch.float64)


def _padded(rows: Sequence[Tensor], like: Tensor) -> Tensor:
    """[B, T] of ``like``'s kind."""
    out = torch.zeros_like(like)
    for row, values in enumerate(rows):
        out[row, : len(values)] = values.to(like)
    return out


def _share(rows: Sequence[int]) -> Sequence[int]:
    """This process's rows: neighbours, for they share prefixes."""
    if not distributed.is_initialized():
        return rows
    rank, world = distributed.get_rank(), distributed.get_world_size()
    return rows[len(rows) * rank // world : len(rows) * (rank + 1) // world]


def _added_up(values: Tensor) -> Tensor:
    """The sum over all processes."""
    if distributed.is_initialized():
        device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
        values = values.to(device)
        distributed.all_reduce(values)
    return values.cpu()


def _add_up_gradients(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Every process's share has the whole step's divisors already, so the gradients are summed, not averaged."""
    if not distributed.is_initialized():
        return
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        distributed.all_reduce(parameter.grad)
