"""Policy update of one step: ``ppo_epochs`` optimiser steps on a batch of credited groups.

Scores log-probs in micro-batches, computes the loss, clips gradients and steps AdamW. It is synchronous, so no other
task sees partly updated weights.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate.utils import send_to_device
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from llm_as_judge.config.schema import TrainingConfig
from llm_as_judge.errors import LLMAsJudgeError
from llm_as_judge.policy.exactness import CheckedLayout
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import PLAIN, Sampling
from llm_as_judge.policy.scoring import Layout
from llm_as_judge.rl.credit import CreditedGroup
from llm_as_judge.rl.loss import LossInputs, LossOutputs, Normaliser, policy_loss
from llm_as_judge.rl.ranks import ALONE, Ranks, add_up_gradients, divide
from llm_as_judge.types import Completion

logger = logging.getLogger(__name__)

#: Updates in a row without a finite gradient, after which a run stops.
MOST_SKIPPED = 3


class TrainingStopped(LLMAsJudgeError):
    """The run would be wasted: the policy collapsed or gradients are not finite."""


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """Means over the trained tokens of one batch and all epochs; loss and gradient norm are those of the last epoch."""

    loss: float = 0.0
    kl: float = math.nan
    entropy: float = math.nan
    clip_fraction: float = 0.0
    grad_norm: float = 0.0
    corrected: float = 0.0  # share of tokens whose importance weight was truncated or masked
    sampling_logp_difference: float = 0.0  # absolute, trainer minus engine; 0 without importance sampling

    @classmethod
    def of(cls, config: TrainingConfig, loss: float, sums: Sequence[float], norm: float) -> "UpdateReport":
        """Build it from ``sums`` over all epochs, those of ``LossOutputs`` from ``tokens`` on."""
        kl, entropy, clipped, *compared = (total / sums[0] for total in sums[1:])
        return cls(loss, kl if config.beta else math.nan, entropy, clipped, norm, *compared)


class Optimizer(Protocol):
    """Trained weights with their optimiser, here or on a server."""

    steps: int  # so far; not part of ``save``

    @property
    def learning_rate(self) -> float: ...  # of the last step

    def share(self) -> None: ...  # called before the first work
    def save(self, folder: Path) -> None: ...
    def load(self, folder: Path) -> None: ...


class Learner(Protocol):
    """What trains a policy.

    ``unsettled`` is True from the first optimiser step of an ``update`` until the caller resets it: meanwhile the
    weights are not those of the last finished step.
    """

    unsettled: bool

    @property
    def optimizer(self) -> Optimizer: ...

    def update(self, batch: "Batch", sampling: Sampling, version: int) -> UpdateReport:
        """Train on rows that were sampled from ``sampling``; ``version`` is that of the current weights.

        Raises ``TrainingStopped`` if the gradient is not finite.
        """

    def logprobs(self, completions: Sequence[Completion]) -> list[Tensor]:
        """Compute log-probs [T] of the completions' tokens by the current weights."""


class SharedAdamW(torch.optim.AdamW):
    """AdamW with equal steps on all ranks, an ``Optimizer``. Rank 0 calls ``share``, the others ``take``."""

    def __init__(self, policy: Policy, ranks: Ranks, learning_rate: float, weight_decay: float) -> None:
        self.policy, self.weights = policy, policy.trainable_parameters
        self.ranks, self.steps = ranks, 0
        super().__init__(self.weights, lr=learning_rate, betas=(0.9, 0.99), weight_decay=weight_decay)

    @property
    def learning_rate(self) -> float:
        return float(self.param_groups[0]["lr"])

    def save(self, folder: Path) -> None:
        self.policy.save_adapter(folder)
        torch.save(self.state_dict(), folder / "optimizer.pt")

    def load(self, folder: Path) -> None:
        """Raise ``DataError`` or ``ConfigError`` for an adapter of another shape, and what ``torch.load`` raises."""
        moments = torch.load(folder / "optimizer.pt", weights_only=True, map_location="cpu")
        self.policy.load_adapter(folder)
        self.load_state_dict(moments)

    def clipped_step(self, config: TrainingConfig, rise: float) -> float:
        """Sum the gradients over ranks, clip them and take a step; returns the norm before clipping.

        If the norm is not finite, no step is taken.
        """
        add_up_gradients(self.ranks, self.weights)
        norm = float(torch.nn.utils.clip_grad_norm_(self.weights, config.max_grad_norm))
        if math.isfinite(norm):
            for group in self.param_groups:
                group |= {"lr": config.learning_rate * rise, "weight_decay": config.weight_decay}
            self.step()
            self.steps += 1
        self.zero_grad(set_to_none=True)
        return norm

    def share(self) -> None:
        """Send weights and state to all ranks. Call it before the first work."""
        if self.ranks.size > 1:
            weights = [weight.detach().cpu() for weight in self.weights]
            self.ranks.tell((weights, send_to_device(self.state_dict(), "cpu"), self.steps))

    def take(self, weights: Sequence[Tensor], state: dict[str, Any], steps: int) -> None:
        """Take over what rank 0 has shared."""
        self.steps = steps
        with torch.no_grad():
            for weight, sent in zip(self.weights, weights, strict=True):
                weight.copy_(sent)
        self.load_state_dict(state)


@dataclass(slots=True)
class Row:
    """A completion in the update, and the log-probs that later epochs need."""

    completion: Completion
    advantage: float
    old: Tensor | None  # [T] log-probs in the ratio's denominator; None until the first epoch fills them in
    reference: Tensor | None = None  # [T], if beta > 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows with a gradient, and the settings of their loss."""

    rows: Sequence[Row]
    normaliser: Normaliser
    config: TrainingConfig

    @classmethod
    def of(cls, groups: Sequence[CreditedGroup], version: int, config: TrainingConfig) -> "Batch":
        """Collect the scored completions of ``groups``. For those sampled by older weights than ``version``, ``old`` is
        their sampling log-probs, unless truncated importance weights correct them.
        """
        rows = [
            Row(one.completion, advantage, None)
            for group in groups
            for one, reward, advantage in zip(group.group.rollouts, group.rewards, group.advantages, strict=True)
            if not math.isnan(reward)
        ]
        unit = config.importance_sampling.partition("_")[0]
        stale = [row for row in rows if row.completion.policy_version != version]
        if stale and unit != "off":
            # With masking, most tokens that have become likelier since would teach nothing.
            config = config.model_copy(update={"importance_sampling": f"{unit}_truncate"})
        else:
            for row in stale:
                row.old = torch.tensor(row.completion.logprobs)
        normaliser = Normaliser(len(rows), sum(row.completion.written for row in rows))
        # Without a KL term, a rollout with advantage 0 has no gradient: it counts in the normaliser only.
        return cls(rows if config.beta else [row for row in rows if row.advantage], normaliser, config)


@dataclass(frozen=True, slots=True)
class _Work:
    """An update as it is sent to all ranks; ``shares[rank]`` are the rows of a rank."""

    batch: Batch
    shares: Sequence[Sequence[int]]
    sampling: Sampling
    version: int


class Updater:
    """The learner of a policy in this process. Rank 0 calls ``optimizer.share`` and ``update``, other ``ranks``
    ``follow``.
    """

    def __init__(self, policy: Policy, config: TrainingConfig, ranks: Ranks = ALONE) -> None:
        self.policy, self.config, self.ranks = policy, config, ranks
        self.unsettled, self._skipped = False, 0
        self.optimizer = SharedAdamW(policy, ranks, config.learning_rate, config.weight_decay)
        self.checked_layout = CheckedLayout(policy, config.shared_prefix, config.micro_batch_tokens)

    def update(self, batch: Batch, sampling: Sampling, version: int) -> UpdateReport:
        """Update on all ranks: each has the gradient of its share, the gradients are summed, and all take one step.

        Raises ``ConfigError`` if the first batch cannot be scored exactly, ``RankFailed`` or ``RankLost`` for another
        rank.
        """
        if not batch.rows:
            return UpdateReport()
        shares = divide([row.completion for row in batch.rows], self.ranks.size)
        work = _Work(batch, shares, sampling, version)
        self.ranks.tell(work)
        return self._update(work)

    def logprobs(self, completions: Sequence[Completion]) -> list[Tensor]:
        layout, budget = self.checked_layout(completions, PLAIN), self.config.micro_batch_tokens
        return self.policy.known_logprobs(completions, PLAIN, layout, budget)

    def follow(self) -> None:
        """Take part in the updates of rank 0 until the end of the run. Raises what ``update`` raises."""
        while (message := self.ranks.hear()) is not None:
            if isinstance(message, _Work):
                self._update(message)
            else:
                self.optimizer.take(*message)

    def _update(self, work: _Work) -> UpdateReport:
        """Run the optimiser epochs, on every rank."""
        config, rows = work.batch.config, [work.batch.rows[i] for i in work.shares[self.ranks.rank]]
        with self.ranks.together():
            layout = self._prepare(rows, work)
        sums, loss, norm = torch.zeros(len(LossOutputs._fields), dtype=torch.float64), 0.0, 0.0
        for _ in range(config.ppo_epochs):
            self.optimizer.zero_grad(set_to_none=True)
            own = torch.zeros_like(sums)
            with self.ranks.together():
                for out in self._backward(rows, layout, work):
                    own = own + torch.tensor([float(out.loss), *out[1:]], dtype=torch.float64)
            epoch = self.ranks.add_up(own)
            loss, sums = float(epoch[0]), sums + epoch
            before, self.unsettled = self.unsettled, True
            norm = self.optimizer.clipped_step(config, rise_of(config, self.optimizer.steps))
            self._skipped = 0 if math.isfinite(norm) else self._skipped + 1
            if self._skipped:
                self.unsettled = before
                what = f"step {work.version + 1}: the gradient norm is {norm}, so that no step is taken"
                if self._skipped == MOST_SKIPPED:
                    cure = f"lower the learning rate ({config.learning_rate}) or set model.dtype=float32"
                    raise TrainingStopped(f"{what}, {MOST_SKIPPED} times in a row; {cure}")
                logger.warning(what)
        self.ranks.compare(f"step {work.version + 1}: the adapter", self.optimizer.weights)
        return UpdateReport.of(config, loss, sums.tolist()[1:], norm)

    def _prepare(self, rows: Sequence[Row], work: _Work) -> Layout:
        """Choose the layout of this rank's share and score it under the KL reference."""
        if not rows:
            return "padded"
        completions = [row.completion for row in rows]
        layout = self.checked_layout(completions, work.sampling)
        if work.batch.config.beta:
            budget = self.config.micro_batch_tokens
            references = self.policy.known_logprobs(completions, work.sampling, layout, budget, reference=True)
            for row, reference in zip(rows, references, strict=True):
                row.reference = reference
        return layout

    def _backward(self, rows: Sequence[Row], layout: Layout, work: _Work) -> Iterator[LossOutputs]:
        """Add the gradient of one micro-batch after the other."""
        if not rows:
            return
        completions, budget = [row.completion for row in rows], self.config.micro_batch_tokens
        for members, scores in self.policy.micro_batches(completions, work.sampling, layout, budget):
            inputs = inputs_of([rows[i] for i in members], scores.logprobs, scores.mask, scores.entropy)
            out = policy_loss(inputs, work.batch.config, work.batch.normaliser)
            out.loss.backward()  # type: ignore[no-untyped-call]
            yield out._replace(loss=out.loss.detach())


def rise_of(config: TrainingConfig, steps: int) -> float:
    """Return the share of the learning rate in the step after ``steps``: it grows linearly, then is constant."""
    return min(1.0, (steps + 1) / max(1, config.warmup_steps))


def inputs_of(rows: Sequence[Row], logprobs: Tensor, mask: Tensor, entropy: Tensor | None = None) -> LossInputs:
    """Make the loss's inputs for ``rows`` with ``logprobs`` [B, T]; at the first epoch, these are kept in the rows."""
    for row, own in zip(rows, logprobs.detach(), strict=True):
        if row.old is None:
            row.old = own[: len(row.completion.token_ids)].clone()

    def padded(values: Sequence[Tensor | None]) -> Tensor | None:
        """Pad ``values`` of each row to [B, T]."""
        known = [own.to(logprobs) for own in values if own is not None]
        return pad_sequence(known, batch_first=True) if known else None

    return LossInputs(
        logprobs=logprobs,
        advantages=logprobs.new_tensor([row.advantage for row in rows]),
        mask=mask,
        old_logprobs=padded([row.old for row in rows]),
        ref_logprobs=padded([row.reference for row in rows]),
        entropy=entropy,
        sampling_logprobs=padded([torch.tensor(row.completion.logprobs) for row in rows]),
    )
