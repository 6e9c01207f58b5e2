"""The gradient side of a step: one judged batch in, the policy's weights moved, means over its tokens out.

Log-probs, loss, clipping, warm-up and AdamW over ``ppo_epochs`` passes in micro-batches. What the rollouts are
worth is decided before, checkpoints are written after (``rl.trainer``). It never awaits, so no other task sees
weights half way.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from llm_as_judge.config.schema import TrainingConfig
from llm_as_judge.errors import ConfigError, LLMAsJudgeError
from llm_as_judge.policy.exactness import check_exact, check_plain
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.scoring import Layout, Sampling, TokenScores, choose_layout
from llm_as_judge.rl.credit import CreditedGroup
from llm_as_judge.rl.loss import LossInputs, LossOutputs, Normaliser, policy_loss
from llm_as_judge.rl.ranks import ALONE, Ranks, add_up_gradients, share_state, spread, take_state
from llm_as_judge.rl.schedule import learning_rate_at
from llm_as_judge.rl.sharding import passes
from llm_as_judge.types import Completion

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
class _Row:
    """A completion in the update, and what the first epoch leaves for the later ones."""

    completion: Completion
    advantage: float
    old: Tensor | None  # [T] log-probs the ratio is against; None until the first epoch's scores stand in
    reference: Tensor | None = None  # [T], where beta > 0


@dataclass(frozen=True, slots=True)
class _Work:
    """An update as every rank is told of it: ``shares[rank]`` are its rows."""

    shares: Sequence[Sequence[_Row]]
    normaliser: Normaliser
    sampling: Sampling
    version: int
    config: TrainingConfig


class Updater:
    """Owns the optimiser. ``updates`` (optimiser steps so far, for the warm-up) and ``optimizer`` belong in a
    checkpoint.

    ``unsettled`` is True from the first optimiser step of an ``update`` until ``settle``: meanwhile the weights
    are not those of the last finished step. With several ``ranks`` each has an updater: rank 0 calls ``share_state``
    and ``update``, the others ``follow``.
    """

    def __init__(self, policy: Policy, config: TrainingConfig, ranks: Ranks = ALONE) -> None:
        self.policy = policy
        self.config = config
        self.ranks = ranks
        self.updates = 0
        self.unsettled = False
        self._parameters = policy.trainable_parameters()
        self.optimizer = torch.optim.AdamW(
            self._parameters, lr=config.learning_rate, betas=(0.9, 0.99), weight_decay=config.weight_decay
        )
        self._plain_checked = self._checked = False
        self._sharing = config.shared_prefix

    @property
    def learning_rate(self) -> float:
        """The rate of the last optimiser step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def settle(self) -> None:
        """The step that the update belongs to is finished."""
        self.unsettled = False

    def update(self, groups: Sequence[CreditedGroup], sampling: Sampling, version: int) -> UpdateReport:
        """``ppo_epochs`` optimiser steps, each over the whole batch in micro-batches.

        ``sampling`` is the distribution that the completions were drawn from, ``version`` that of the present weights.
        Every rank takes its share, the gradients are added up, and all make the same step. Raises ``TrainingStopped``
        where the gradient is not finite, ``ConfigError`` where prefixes cannot be shared and ``shared_prefix`` is on,
        or where the first batch does not come out as padded rows do; ``RankFailed`` or ``RankLost`` for another rank.
        """
        config = self.config
        scored = [row for credited in groups for row in _rows(credited, version)]
        unit = config.importance_sampling.partition("_")[0]
        if config.stale_policy == "truncate" and unit != "off" and any(row.old is not None for row in scored):
            # Masked, most of what has become likelier since would teach nothing.
            config = config.model_copy(update={"importance_sampling": f"{unit}_truncate"})
            for row in scored:
                row.old = None
        normaliser = Normaliser(len(scored), sum(len(row.completion.token_ids) for row in scored))
        # Without a KL term a rollout without advantage has no gradient: it counts in the normaliser and is
        # not forwarded.
        trained = scored if config.beta else [row for row in scored if row.advantage]
        if not trained:
            return UpdateReport()
        shares = spread([row.completion for row in trained], self.ranks.size)
        work = _Work([[trained[i] for i in share] for share in shares], normaliser, sampling, version, config)
        self.ranks.tell(work)
        return self._work(work)

    def share_state(self) -> None:
        """Brings all ranks to the weights and the optimiser of this one. Call it before the first update."""
        share_state(self.ranks, self._parameters, self.optimizer, self.updates)

    def follow(self) -> None:
        """Does this rank's part of all that rank 0 tells of, until the end. Raises what ``update`` does."""
        while (told := self.ranks.hear()) is not None:
            if isinstance(told, _Work):
                self._work(told)
            else:
                take_state(told, self._parameters, self.optimizer)
                self.updates = told.steps

    def _work(self, work: _Work) -> UpdateReport:
        """The update, as every rank makes it."""
        config, together = work.config, partial(self.ranks.together, self.policy.sharded)
        with together():
            layout = self._prepare(work)
        sums, loss, norm = torch.zeros(len(_SUMS), dtype=torch.float64), 0.0, 0.0
        for _ in range(config.ppo_epochs):
            self.optimizer.zero_grad(set_to_none=True)
            own = torch.zeros_like(sums)
            with together():
                for out in self._backward(layout, work):
                    own = own + _sums_of(out)
            epoch = self.ranks.add_up(own)
            loss, sums = float(epoch[0]), sums + epoch
            norm = self._optimizer_step(work.version)
        self.optimizer.zero_grad(set_to_none=True)
        self.ranks.compare(f"step {work.version + 1}: the adapter", self._parameters)
        total = dict(zip(_SUMS, sums.tolist(), strict=True))
        tokens = total["tokens"]
        return UpdateReport(
            loss=loss,
            kl=total["kl"] / tokens if config.beta else math.nan,
            entropy=total["entropy"] / tokens,
            clip_fraction=(total["clipped_low"] + total["clipped_high"]) / tokens,
            grad_norm=norm,
            corrected=total["corrected"] / tokens,
        )

    def layout(self, completions: Sequence[Completion]) -> Layout:
        """How ``completions`` are forwarded. Raises ``ConfigError`` where the settings ask for what cannot be."""
        if self._sharing is not None:
            return "tree" if self._sharing else "padded"
        longest = max(len(c.prompt_ids) + len(c.token_ids) for c in completions)
        return "padded" if self.policy.why_no_tree(longest) else choose_layout(completions)

    def checked_layout(self, completions: Sequence[Completion], sampling: Sampling) -> Layout:
        """The same, compared with padded rows, and those with the model's own pass, the first time. Raises
        ``ConfigError`` where they differ.
        """
        layout = self.layout(completions)
        if not self._plain_checked:
            logger.info("within %.1e nats of the model's own forward pass", check_plain(self.policy, completions))
            self._plain_checked = True
        if layout == "tree" and not self._checked:
            layout = self._checked_tree(completions, sampling)
        return layout

    def _prepare(self, work: _Work) -> Layout:
        """The layout of this rank's share, checked once a run; fills in the reference's log-probs."""
        sampling, share = work.sampling, work.shares[self.ranks.rank]
        # Ranks that compute together check the same and come to the same.
        checked = [row for rows in work.shares for row in rows] if self.policy.sharded else share
        if not checked:
            return "padded"
        layout = self.checked_layout([row.completion for row in checked], sampling)
        if self.config.beta:
            for rows, budget, _ in self._portions(layout, work):
                own = [row.completion for row in rows]
                references = self.policy.reference_logprobs(own, sampling, layout, budget)
                for row, reference in zip(rows, references, strict=True):
                    row.reference = reference
        return layout

    def _portions(self, layout: Layout, work: _Work) -> Iterator[tuple[Sequence[_Row], int, bool]]:
        """This rank's rows, the tokens that a pass may take, and whether they count.

        Over a sharded base a portion is a pass, and all ranks make as many; those that make up the number do not count.
        """
        budget, share = self.config.micro_batch_tokens, work.shares[self.ranks.rank]
        if not self.policy.sharded:
            if share:
                yield share, budget, True
            return
        cuts = [passes([row.completion for row in rows], layout, budget) for rows in work.shares]
        for cut in cuts[self.ranks.rank]:
            yield [share[i] for i in cut], sys.maxsize, True
        some = next(rows for rows in work.shares if rows)[:1]
        for _ in range(max(map(len, cuts)) - len(cuts[self.ranks.rank])):
            yield some, sys.maxsize, False

    def _checked_tree(self, completions: Sequence[Completion], sampling: Sampling) -> Layout:
        """``tree`` where it is exact; where it is not and nobody asked for it, ``padded`` from now on."""
        budget = self.config.micro_batch_tokens
        if self.policy.sharded:  # whose layers know no stages
            completions, budget = [completions[i] for i in passes(completions, "tree", budget)[0]], sys.maxsize
        try:
            difference = check_exact(self.policy, completions, sampling, budget)
        except ConfigError as error:
            if self._sharing or self.policy.sharded:  # all ranks take the same way
                raise
            logger.warning("prefixes are not shared: %s", error)
            self._sharing = False
            return "padded"
        logger.info(
            "shared prefixes: within %.1e nats of padded rows, gradient %.1e; at %d of %d tokens rounding decides what "
            "top_p or top_k keeps",
            *(difference.logprob, difference.gradient, difference.flips, difference.tokens),
        )
        self._checked = True
        return "tree"

    def _backward(self, layout: Layout, work: _Work) -> Iterator[LossOutputs]:
        """Adds the gradient of one micro-batch after the other."""
        for rows, budget, counts in self._portions(layout, work):
            completions = [row.completion for row in rows]
            for batch in self.policy.micro_batches(completions, work.sampling, layout, budget):
                if counts:
                    yield self._learn(batch.scores, [rows[i] for i in batch.members], work)
                else:
                    (0.0 * batch.scores.logprobs.sum()).backward()  # type: ignore[no-untyped-call]

    def _learn(self, scores: TokenScores, members: Sequence[_Row], work: _Work) -> LossOutputs:
        """Adds the gradient of ``members``."""
        for row, logprobs in zip(members, scores.logprobs.detach(), strict=True):
            if row.old is None:
                row.old = logprobs[: len(row.completion.token_ids)].clone()
        inputs = LossInputs(
            scores.logprobs,
            scores.logprobs.new_tensor([row.advantage for row in members]),
            scores.mask,
            _padded([row.old for row in members], scores.logprobs),
            _padded([row.reference for row in members], scores.logprobs) if self.config.beta else None,
            scores.entropy,
            _padded([torch.tensor(row.completion.logprobs) for row in members], scores.logprobs),
        )
        out = policy_loss(inputs, work.config, work.normaliser)
        out.loss.backward()  # type: ignore[no-untyped-call]
        return out

    def _optimizer_step(self, version: int) -> float:
        """Clips and steps; returns the gradient norm before clipping."""
        config = self.config
        add_up_gradients(self.ranks, self._parameters)
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, config.max_grad_norm))
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise TrainingStopped(
                f"step {version + 1}: gradient norm is {norm}; lower training.learning_rate "
                f"({config.learning_rate}) or use model.dtype=float32"
            )
        self.unsettled = True
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate_at(config, self.updates)
        self.optimizer.step()
        self.updates += 1
        return norm


_SUMS = ("loss", "tokens", "clipped_low", "clipped_high", "kl", "entropy", "corrected")


def _sums_of(out: LossOutputs) -> Tensor:
    values = (torch.as_tensor(getattr(out, name)).detach() for name in _SUMS)
    return torch.tensor([float(v) for v in values], dtype=torch.float64)


def _rows(credited: CreditedGroup, version: int) -> Iterator[_Row]:
    """The scored completions of a group; one of older weights is weighed against what it was sampled with."""
    for rollout, reward, advantage in zip(credited.group.rollouts, credited.rewards, credited.advantages, strict=True):
        if not math.isnan(reward):
            completion = rollout.completion
            stale = completion.policy_version != version
            yield _Row(completion, advantage, torch.tensor(completion.logprobs) if stale else None)


def _padded(rows: Sequence[Tensor | None], like: Tensor) -> Tensor:
    """[B, T] of ``like``'s kind, without gradient."""
    out = torch.zeros_like(like)
    for row, values in enumerate(rows):
        if values is not None:
            out[row, : len(values)] = values.to(like)
    return out
