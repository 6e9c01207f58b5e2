"""The GRPO loop: sample, prompt, generate, execute and judge, advantages, update, remember, checkpoint.

All parts are handed in. A step is one batch of problems; all its prompts are built before the first token is
generated, so the examples in them are frozen for the step. Only the update touches weights and it runs
without a pause for other tasks, so an interruption leaves the last finished step, which is then written.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from llm_as_judge.errors import ConfigError, DataError, LLMAsJudgeError
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.advantage import Advantages, Scale, group_advantages
from llm_as_judge.rl.loss import LossInputs, LossSettings, LossType, Normaliser, policy_loss
from llm_as_judge.rl.policy import Policy, PromptLike, Sampling
from llm_as_judge.rl.rollout import Engine, RolloutParts, collect
from llm_as_judge.types import Completion, Group, Problem, Question, Rollout

logger = logging.getLogger(__name__)

#: Draws of a problem whose prompt fits, before the data are declared unfit.
MAX_REDRAWS = 20


class TrainingStopped(LLMAsJudgeError):
    """Going on would waste the run: the policy collapsed or the gradient is not finite."""


class Sampler(Protocol):
    """Draws problems; its state is part of a checkpoint."""

    def sample(self, n: int) -> Sequence[Problem]: ...
    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Buffer(Protocol):
    """The experience buffer; ``update`` sees every group once, after its step."""

    def update(self, groups: Sequence[Group], step: int) -> None: ...
    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Log(Protocol):
    """``EventLog.log``."""

    def __call__(self, kind: str, /, **fields: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """The ``training`` and ``generation`` sections of the configuration, under the same names."""

    seed: int = 0
    max_steps: int = 100
    rollout_batch_size: int = 4
    num_return_sequences_in_group: int = 6
    ppo_epochs: int = 1
    learning_rate: float = 5e-6
    warmup_steps: int = 0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    epsilon: float = 0.2
    epsilon_high: float = 0.28
    beta: float = 0.0
    loss_type: LossType = "dr_grpo"
    scale_rewards: Scale = "group"
    micro_batch_size: int = 8
    save_every: int = 50
    eval_every: int = 0
    prompt_max_length: int = 3072
    response_max_length: int = 1024
    shuffle_rewards: bool = False
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    shared_prefix: bool | None = None  # None: on the CPU and without gradient checkpointing
    collapse_ratio: float = 0.5  # stop where the average valid rate falls below this share of its best
    collapse_patience: int = 5  # steps before the canary may stop a run

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ConfigError(f"generation.temperature={self.temperature} must be > 0: no contrast otherwise")
        for name in ("rollout_batch_size", "ppo_epochs", "micro_batch_size", "response_max_length"):
            if getattr(self, name) < 1:
                raise ConfigError(f"training.{name}={getattr(self, name)} must be >= 1")
        if self.num_return_sequences_in_group < 2:
            raise ConfigError(
                f"training.num_return_sequences_in_group={self.num_return_sequences_in_group} must be >= 2: "
                "an advantage is relative to the group"
            )


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step came to. Rates are shares in [0, 1]; means over nothing are NaN."""

    step: int
    reward_mean: float  # scored rollouts
    accuracy: float  # of scored rollouts, the right ones
    valid_rate: float  # of rollouts that were not our fault, those that ran to an answer
    domain_accuracy: Mapping[str, float]
    executor_tokens: float  # per workflow run
    completion_tokens: float  # per completion
    loss: float
    kl: float  # k3 to the reference, NaN where beta is 0
    entropy: float  # nats per trained token
    clip_fraction: float
    grad_norm: float
    learning_rate: float
    groups: int
    skipped_groups: int
    unscored: int
    seconds: Mapping[str, float]  # by phase


@dataclass(frozen=True, slots=True)
class TrainerParts:
    """What the loop works with. ``evaluate`` is awaited every ``eval_every`` steps, its result logged."""

    policy: Policy
    engine: Engine
    sampler: Sampler
    build_prompt: Callable[[Question], PromptLike]
    rollout: RolloutParts
    log: Log
    checkpoint_dir: Path
    buffer: Buffer | None = None
    on_step: Callable[[StepReport], None] | None = None
    evaluate: Callable[[int], Awaitable[Mapping[str, float]]] | None = None
    config_text: str = ""  # stored with every checkpoint


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


@dataclass
class _Timer:
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


class Trainer:
    """``train`` runs steps; ``resume`` goes on from a checkpoint, bit for bit where the parts are
    deterministic.
    """

    def __init__(self, parts: TrainerParts, settings: TrainerSettings) -> None:
        self.parts = parts
        self.settings = settings
        self.step = 0  # finished steps; also the version of the policy's weights
        self._updates = 0
        self._valid_average: float | None = None
        self._best_valid = 0.0
        self._parameters = parts.policy.trainable_parameters()
        self._optimizer = torch.optim.AdamW(
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
        self._shared_prefix = settings.shared_prefix
        if self._shared_prefix is None:
            self._shared_prefix = parts.policy.device.type == "cpu" and not parts.policy.settings.gradient_checkpointing
        self._updating = False
        self._saved = 0
        self._finished = self._state()

    def resume(self, path: Path) -> None:
        """Takes all from a checkpoint. Raises ``DataError`` or ``ConfigError`` where it does not fit."""
        state = checkpoint.load(path, self.parts.policy, self._optimizer, self.parts.policy.device)
        self.step = self._saved = state.step
        self._updates = state.counters["updates"]
        self._valid_average = state.counters["valid_average"]
        self._best_valid = state.counters["best_valid"]
        self.parts.sampler.load_state_dict(state.sampler)
        if self.parts.buffer is not None and state.buffer:
            self.parts.buffer.load_state_dict(state.buffer)
        checkpoint.restore_random_states(state.random_states)
        self._finished = self._state()

    async def train(self, num_steps: int | None = None) -> StepReport | None:
        """Runs ``num_steps`` more steps (default: up to ``max_steps`` in all) and returns the last one's
        report.

        Interrupted (Ctrl-C, cancellation, a part's error), it writes the last finished step before it gives
        way. Raises ``TrainingStopped`` where the policy collapsed.
        """
        steps = max(0, self.settings.max_steps - self.step) if num_steps is None else num_steps
        report = None
        try:
            for _ in range(steps):
                report = await self._one_step()
                if self.settings.save_every and self.step % self.settings.save_every == 0:
                    self.save()
                if self.parts.on_step is not None:
                    self.parts.on_step(report)
                every = self.settings.eval_every
                if self.parts.evaluate is not None and every and self.step % every == 0:
                    self.parts.log("eval", step=self.step, **await self.parts.evaluate(self.step))
        except TrainingStopped:
            raise
        except (KeyboardInterrupt, asyncio.CancelledError, Exception):
            if self._updating:
                logger.warning("stopped inside an update: the last checkpoint on disk stands")
            else:
                self.save()
            raise
        self.save()
        return report

    def save(self) -> Path | None:
        """Writes the last finished step, unless there is none or it is on disk already."""
        state = self._finished
        if state.step == self._saved:
            return None
        path = checkpoint.save(
            self.parts.checkpoint_dir, self.parts.policy, self._optimizer, state, self.parts.config_text
        )
        self._saved = state.step
        self.parts.log("checkpoint", step=state.step, path=str(path))
        return path

    async def _one_step(self) -> StepReport:
        parts, settings, timer = self.parts, self.settings, _Timer()
        with timer.phase("prompt"):
            problems, prompts = self._draw()
        with timer.phase("sync"):
            parts.engine.sync(parts.policy, self.step)
        with timer.phase("generate"):
            completions = parts.engine.generate(
                prompts,
                settings.num_return_sequences_in_group,
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=settings.top_k,
                max_new_tokens=settings.response_max_length,
                seed=self._seed(0),
            )
        with timer.phase("execute"):
            groups = await collect(problems, completions, parts.rollout, self._special_tokens())
        rollouts = [r for g in groups for r in g.rollouts]
        rewards = self._rewards(rollouts)
        index = torch.tensor([i for i, g in enumerate(groups) for _ in g.rollouts])
        advantages = group_advantages(rewards, index, settings.scale_rewards)
        with timer.phase("update"):
            update = self._update(rollouts, rewards, advantages)
        self.step += 1
        if parts.buffer is not None:
            parts.buffer.update(groups, self.step)
        report = self._report(groups, advantages, update, timer.seconds)
        collapse = self._canary(report.valid_rate)
        self._log(prompts, groups, advantages, report)
        if collapse:
            raise TrainingStopped(collapse)
        self._finished = self._state()
        self._updating = False
        return report

    def _draw(self) -> tuple[list[Problem], list[list[int]]]:
        """Problems and their prompts; one whose prompt is too long is drawn again, for cutting it would hide
        its parts.
        """
        problems: list[Problem] = []
        prompts: list[list[int]] = []
        longest = 0
        for _ in range(MAX_REDRAWS):
            for problem in self.parts.sampler.sample(self.settings.rollout_batch_size - len(problems)):
                ids = self.parts.policy.encode(self.parts.build_prompt(problem.question))
                if len(ids) <= self.settings.prompt_max_length:
                    problems.append(problem)
                    prompts.append(ids)
                else:
                    longest = max(longest, len(ids))
                    self.parts.log("prompt_too_long", step=self.step + 1, problem=problem.question.id, tokens=len(ids))
            if len(problems) == self.settings.rollout_batch_size:
                return problems, prompts
        raise DataError(
            f"after {MAX_REDRAWS} draws too few prompts fit training.prompt_max_length="
            f"{self.settings.prompt_max_length} (longest: {longest} tokens); "
            "raise it or lower experience_buffer.top_k"
        )

    def _rewards(self, rollouts: Sequence[Rollout]) -> torch.Tensor:
        """Totals [N], NaN = unscored. The control experiment permutes the scored ones over the batch."""
        totals = [r.reward.total for r in rollouts]
        rewards = torch.tensor([math.nan if t is None else t for t in totals], dtype=torch.float64)
        if self.settings.shuffle_rewards:
            scored = torch.nonzero(~torch.isnan(rewards))[:, 0]
            order = torch.randperm(len(scored), generator=torch.Generator().manual_seed(self._seed(1)))
            rewards[scored] = rewards[scored[order]]
        return rewards

    def _update(self, rollouts: Sequence[Rollout], rewards: torch.Tensor, advantages: Advantages) -> UpdateReport:
        """``ppo_epochs`` optimiser steps, each over the whole batch in micro-batches."""
        settings = self.settings
        scored = ~torch.isnan(rewards)
        lengths = torch.tensor([len(r.completion.token_ids) for r in rollouts])
        normaliser = Normaliser(int(scored.sum()), int(lengths[scored].sum()))
        # Without a KL term a rollout without advantage has no gradient: it counts in the normaliser and is
        # not forwarded.
        trained = scored if settings.beta else scored & (advantages.values != 0)
        chosen = torch.nonzero(trained)[:, 0].tolist()
        if not chosen:
            return UpdateReport()
        size = settings.micro_batch_size
        batches = [chosen[i : i + size] for i in range(0, len(chosen), size)]
        old = [self._behaviour_logprobs([rollouts[i].completion for i in b]) for b in batches]
        references: list[torch.Tensor | None] = [None] * len(batches)
        tokens, clipped, kl, entropy, loss, norm = 0, 0.0, 0.0, 0.0, 0.0, 0.0
        for epoch in range(settings.ppo_epochs):
            self._optimizer.zero_grad(set_to_none=True)
            loss = 0.0
            for number, batch in enumerate(batches):
                completions = [rollouts[i].completion for i in batch]
                scores = self.parts.policy.logprobs(
                    completions, self._sampling, shared_prefix=bool(self._shared_prefix)
                )
                if settings.beta and references[number] is None:
                    references[number] = self.parts.policy.logprobs(
                        completions, self._sampling, reference=True, shared_prefix=bool(self._shared_prefix)
                    ).logprobs
                inputs = LossInputs(
                    scores.logprobs,
                    advantages.values[batch].to(scores.logprobs),
                    scores.mask,
                    old[number],
                    references[number],
                    scores.entropy,
                )
                out = policy_loss(inputs, self._loss, normaliser)
                out.loss.backward()  # type: ignore[no-untyped-call]
                if epoch == 0 and old[number] is None:
                    old[number] = scores.logprobs.detach()
                tokens, loss = tokens + out.tokens, loss + out.loss.item()
                clipped += out.clipped_low + out.clipped_high
                kl, entropy = kl + out.kl, entropy + out.entropy
            norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, settings.max_grad_norm))
            if not math.isfinite(norm):
                self._optimizer.zero_grad(set_to_none=True)
                raise TrainingStopped(
                    f"step {self.step + 1}: gradient norm is {norm}; lower training.learning_rate "
                    f"({settings.learning_rate}) or use model.dtype=float32"
                )
            self._updating = True
            for group in self._optimizer.param_groups:
                group["lr"] = self._learning_rate()
            self._optimizer.step()
            self._updates += 1
        self._optimizer.zero_grad(set_to_none=True)
        return UpdateReport(loss, kl / tokens if settings.beta else math.nan, entropy / tokens, clipped / tokens, norm)

    def _behaviour_logprobs(self, completions: Sequence[Completion]) -> torch.Tensor | None:
        """None where the present weights sampled all of them (their first-epoch scores are the old ones),
        else as sampled.
        """
        if all(c.policy_version == self.step for c in completions):
            return None
        rows = [torch.tensor(c.logprobs) for c in completions]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(self.parts.policy.device)

    def _learning_rate(self) -> float:
        share = 1.0 if not self.settings.warmup_steps else min(1.0, (self._updates + 1) / self.settings.warmup_steps)
        return self.settings.learning_rate * share

    def _seed(self, stream: int) -> int:
        """A seed of its own for every step and purpose, so that resuming needs no generator state."""
        text = f"{self.settings.seed}/{self.step}/{stream}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:7], "big")

    def _special_tokens(self) -> list[str]:
        return list(getattr(self.parts.policy.tokenizer, "all_special_tokens", ()))

    def _canary(self, valid_rate: float) -> str:
        """Follows the valid rate; a message where it collapsed, else an empty string."""
        if math.isnan(valid_rate):
            return ""
        before = self._valid_average
        self._valid_average = valid_rate if before is None else 0.8 * before + 0.2 * valid_rate
        self._best_valid = max(self._best_valid, self._valid_average)
        floor = self.settings.collapse_ratio * self._best_valid
        if self.step <= self.settings.collapse_patience or self._valid_average >= floor or self._best_valid < 0.2:
            return ""
        return (
            f"step {self.step}: valid workflows fell to {self._valid_average:.0%} (running average), from "
            f"{self._best_valid:.0%} at best; go on from an earlier checkpoint in "
            f"{self.parts.checkpoint_dir} with a lower training.learning_rate "
            f"(now {self.settings.learning_rate}) or a higher training.beta (now {self.settings.beta})"
        )

    def _state(self) -> checkpoint.TrainingState:
        buffer = self.parts.buffer
        return checkpoint.TrainingState(
            step=self.step,
            random_states=checkpoint.random_states(),
            sampler=copy.deepcopy(dict(self.parts.sampler.state_dict())),
            buffer={} if buffer is None else copy.deepcopy(dict(buffer.state_dict())),
            counters={
                "updates": self._updates,
                "valid_average": self._valid_average,
                "best_valid": self._best_valid,
            },
        )

    def _report(
        self,
        groups: Sequence[Group],
        advantages: Advantages,
        update: UpdateReport,
        seconds: Mapping[str, float],
    ) -> StepReport:
        rollouts = [r for g in groups for r in g.rollouts]
        scored = [r for r in rollouts if r.reward.total is not None]
        domains = sorted({r.problem.question.domain for r in scored})
        return StepReport(
            step=self.step,
            reward_mean=_mean([r.reward.total or 0.0 for r in scored]),
            accuracy=_mean([r.verdict.correct is True for r in scored]),
            valid_rate=_mean([r.valid for r in rollouts if r.execution.outcome != "fault"]),
            domain_accuracy={
                d: _mean([r.verdict.correct is True for r in scored if r.problem.question.domain == d]) for d in domains
            },
            executor_tokens=_mean([r.execution.tokens for r in rollouts]),
            completion_tokens=_mean([len(r.completion.token_ids) for r in rollouts]),
            loss=update.loss,
            kl=update.kl,
            entropy=update.entropy,
            clip_fraction=update.clip_fraction,
            grad_norm=update.grad_norm,
            learning_rate=float(self._optimizer.param_groups[0]["lr"]),
            groups=advantages.groups,
            skipped_groups=advantages.skipped_groups,
            unscored=advantages.unscored,
            seconds=dict(seconds),
        )

    def _log(
        self,
        prompts: Sequence[Sequence[int]],
        groups: Sequence[Group],
        advantages: Advantages,
        report: StepReport,
    ) -> None:
        values = iter(advantages.values.tolist())
        for prompt, group in zip(prompts, groups, strict=True):
            question = group.problem.question
            digest = hashlib.sha256(",".join(map(str, prompt)).encode()).hexdigest()[:16]
            for rollout in group.rollouts:
                self.parts.log(
                    "rollout",
                    step=report.step,
                    problem=question.id,
                    domain=question.domain,
                    dataset=question.dataset,
                    prompt=digest,
                    text=rollout.completion.text,
                    completion_tokens=len(rollout.completion.token_ids),
                    finish_reason=rollout.completion.finish_reason,
                    lint=list(rollout.lint),
                    outcome=rollout.execution.outcome,
                    error=rollout.execution.error,
                    answer=rollout.execution.answer,
                    operators=[c.name for c in rollout.execution.calls],
                    executor_tokens=rollout.execution.tokens,
                    cost=rollout.execution.cost,
                    correct=rollout.verdict.correct,
                    tier=rollout.verdict.tier,
                    reason=rollout.verdict.reason,
                    score=rollout.verdict.score,
                    reward=rollout.reward.total,
                    terms=dict(rollout.reward.terms),
                    advantage=next(values),
                )
        # JSON has no NaN: what was not measured is null.
        fields = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(report).items()}
        self.parts.log("step", **fields)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
