"""The GRPO loop: sample, prompt, generate, execute and judge, advantages, update, remember, checkpoint.

All parts are handed in. A step is one batch of problems; all its prompts are built before the first token is
generated, so the examples in them are frozen for the step. Only the update (``rl.update``) touches weights and
it runs without a pause for other tasks, so an interruption leaves the last finished step, which is then written.
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from llm_as_judge.config.schema import Config
from llm_as_judge.errors import DataError
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.credit import CreditedGroup, credit
from llm_as_judge.rl.policy import Policy
from llm_as_judge.rl.report import Log, StepReport, log_step, step_report
from llm_as_judge.rl.rollout import Engine, RolloutParts, collect
from llm_as_judge.rl.schedule import sampling_at
from llm_as_judge.rl.update import TrainingStopped, Updater
from llm_as_judge.types import Group, Problem, Prompt, Question

logger = logging.getLogger(__name__)

#: Draws of a problem whose prompt fits, before the data are declared unfit.
MAX_REDRAWS = 20
#: A run stops where the average valid rate falls below this share of its best, but not in its first steps.
COLLAPSE_RATIO = 0.5
COLLAPSE_PATIENCE = 5


class Sampler(Protocol):
    """Draws problems; its state is part of a checkpoint."""

    def sample(self, n: int) -> Sequence[Problem]: ...
    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Audit(Protocol):
    """``judging.audit.AuditedJudge``: figures of the step by domain, and what is alarming about them."""

    def step(self) -> tuple[Mapping[str, Mapping[str, Any]], Sequence[object]]: ...
    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Buffer(Protocol):
    """The experience buffer; ``update`` sees every group once, after its step, and ``save`` writes it down."""

    def update(self, groups: Sequence[Group], step: int) -> None: ...
    def save(self) -> None: ...
    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class TrainerParts:
    """What the loop works with. ``evaluate`` is awaited every ``eval_every`` steps, its result logged."""

    policy: Policy
    engine: Engine
    sampler: Sampler
    build_prompt: Callable[[Question], Prompt]
    rollout: RolloutParts
    log: Log
    checkpoint_dir: Path
    buffer: Buffer | None = None
    audit: Audit | None = None
    on_step: Callable[[StepReport], None] | None = None
    evaluate: Callable[[int], Awaitable[Mapping[str, float]]] | None = None
    config_text: str = ""  # stored with every checkpoint, as is
    run_id: str = ""


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


def _to_train_on(credited: Sequence[CreditedGroup], size: int) -> list[CreditedGroup]:
    """``size`` groups in their order: those with contrast, then others.

    Groups that were drawn anew thus do not count in the loss's divisors.
    """
    first = sorted(range(len(credited)), key=lambda i: (not credited[i].contrast, i))[:size]
    return [credited[i] for i in sorted(first)]


class Trainer:
    """``train`` runs steps; ``resume`` goes on from a checkpoint, bit for bit where the parts are
    deterministic.
    """

    def __init__(self, parts: TrainerParts, config: Config) -> None:
        self.parts = parts
        self.config = config
        self.step = 0  # finished steps; also the version of the policy's weights
        self._valid_average: float | None = None
        self._best_valid = 0.0
        self.updater = Updater(parts.policy, config.training)
        self._saved = 0
        self._finished = self._state()

    def resume(self, path: Path) -> None:
        """Takes all from a checkpoint. Raises ``DataError`` or ``ConfigError`` where it does not fit."""
        state = checkpoint.load(path, self.parts.policy, self.updater.optimizer, self.parts.policy.device)
        self.step = self._saved = state.step
        self.updater.updates = state.counters["updates"]
        self._valid_average = state.counters["valid_average"]
        self._best_valid = state.counters["best_valid"]
        self.parts.sampler.load_state_dict(state.sampler)
        if self.parts.buffer is not None and state.buffer:
            self.parts.buffer.load_state_dict(state.buffer)
            self.parts.buffer.save()
        if self.parts.audit is not None:
            self.parts.audit.load_state_dict(state.counters.get("audit", {}))
        checkpoint.restore_random_states(state.random_states)
        self._finished = self._state()

    async def train(self, num_steps: int | None = None) -> StepReport | None:
        """Runs ``num_steps`` more steps (default: up to ``max_steps`` in all) and returns the last one's
        report.

        Interrupted (Ctrl-C, cancellation, a part's error), it writes the last finished step before it gives
        way. Raises ``TrainingStopped`` where the policy collapsed, ``InfrastructureError`` where too little can
        be scored for too long.
        """
        config = self.config.training
        steps = max(0, config.max_steps - self.step) if num_steps is None else num_steps
        report = None
        try:
            for _ in range(steps):
                report = await self._one_step()
                if config.save_every and self.step % config.save_every == 0:
                    self.save()
                if self.parts.on_step is not None:
                    self.parts.on_step(report)
                every = config.eval_every
                if self.parts.evaluate is not None and every and self.step % every == 0:
                    self.parts.log("eval", step=self.step, **await self.parts.evaluate(self.step))
        except TrainingStopped:
            raise
        except (KeyboardInterrupt, asyncio.CancelledError, Exception):
            if self.updater.unsettled:
                logger.warning("stopped inside an update: the last checkpoint on disk stands")
            else:
                self._save_on_the_way_out()
            raise
        self.save()
        return report

    def save(self) -> Path | None:
        """Writes the last finished step, unless there is none or it is on disk already."""
        state = self._finished
        if state.step == self._saved:
            return None
        path = checkpoint.save(
            self.parts.checkpoint_dir,
            self.parts.policy,
            self.updater.optimizer,
            state,
            config_text=self.parts.config_text,
            run_id=self.parts.run_id,
        )
        self._saved = state.step
        self.parts.log("checkpoint", step=state.step, path=str(path))
        return path

    def _save_on_the_way_out(self) -> None:
        """What ended the run matters more than a disk that is full, too."""
        try:
            self.save()
        except OSError as error:
            if self._saved != self._finished.step:  # else it was the log's line alone
                logger.warning("step %d could not be written: %s", self._finished.step, error)

    async def _one_step(self) -> StepReport:
        parts, config, timer = self.parts, self.config.training, _Timer()
        groups = await self._roll_out(config.rollout_batch_size, 0, timer)
        credited = self._credit(groups)
        # DAPO's dynamic sampling (arXiv 2503.14476): groups that teach nothing are drawn anew, a few times.
        for refill in range(1, config.refill_rounds + 1):
            missing = config.rollout_batch_size - sum(c.contrast for c in credited)
            if missing <= 0:
                break
            groups += await self._roll_out(missing, refill, timer)
            credited = self._credit(groups)
        sampling = sampling_at(self.config, self.step)
        with timer.phase("update"):
            update = self.updater.update(_to_train_on(credited, config.rollout_batch_size), sampling, self.step)
        self.step += 1
        if parts.buffer is not None:
            parts.buffer.update(groups, self.step)
        report = step_report(
            self.step,
            credited,
            update,
            learning_rate=self.updater.learning_rate,
            seconds=timer.seconds,
            temperature=sampling.temperature,
            refilled=len(groups) - config.rollout_batch_size,
        )
        figures, alarms = parts.audit.step() if parts.audit is not None else ({}, ())
        collapse = self._canary(report.valid_rate) or self._alarming(alarms)
        if not collapse:
            self._finished = self._state()
            self.updater.settle()
        # The step is finished: where the disk has no room for what follows, it is still saved on the way out.
        if parts.buffer is not None:
            parts.buffer.save()
        log_step(parts.log, credited, report)
        if parts.audit is not None:
            parts.log("audit", step=self.step, domains=figures, alarms=[str(alarm) for alarm in alarms])
        if collapse:
            raise TrainingStopped(collapse)
        return report

    async def _roll_out(self, count: int, refill: int, timer: _Timer) -> list[Group]:
        """Groups of ``count`` problems, executed and judged."""
        parts, config = self.parts, self.config.training
        with timer.phase("prompt"):
            problems, prompts, prefills = self._draw(count)
        with timer.phase("sync"):
            parts.engine.sync(parts.policy, self.step)
        sampling = sampling_at(self.config, self.step)
        with timer.phase("generate"):
            completions = parts.engine.generate(
                prompts,
                config.num_return_sequences_in_group,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                max_new_tokens=config.response_max_length,
                seed=self._seed(0 if not refill else 1 + refill),  # 1 is the control experiment's
            )
        begun = [[replace(c, prefill=p) for c in group] for group, p in zip(completions, prefills, strict=True)]
        with timer.phase("execute"):
            return await collect(problems, begun, parts.rollout, seed=self._seed(-1 - refill))

    def _credit(self, groups: Sequence[Group]) -> list[CreditedGroup]:
        config = self.config.training
        return credit(groups, config.scale_rewards, self._seed(1) if config.shuffle_rewards else None)

    def _draw(self, count: int) -> tuple[list[Problem], list[list[int]], list[str]]:
        """Problems, their prompts, and how the replies begin in these. One whose prompt is too long is drawn again, for
        cutting it would hide its parts.
        """
        problems: list[Problem] = []
        prompts: list[list[int]] = []
        prefills: list[str] = []
        longest = 0
        for _ in range(MAX_REDRAWS):
            for problem in self.parts.sampler.sample(count - len(problems)):
                prompt = self.parts.build_prompt(problem.question)
                ids = self.parts.policy.encode(prompt)
                if len(ids) <= self.config.training.prompt_max_length:
                    problems.append(problem)
                    prompts.append(ids)
                    prefills.append(prompt.prefill)
                else:
                    longest = max(longest, len(ids))
                    self.parts.log("prompt_too_long", step=self.step + 1, problem=problem.question.id, tokens=len(ids))
            if len(problems) == count:
                return problems, prompts, prefills
        raise DataError(
            f"after {MAX_REDRAWS} draws too few prompts fit training.prompt_max_length="
            f"{self.config.training.prompt_max_length} (longest: {longest} tokens); "
            "raise it or lower experience_buffer.top_k"
        )

    def _seed(self, stream: int) -> int:
        """A seed of its own for every step and purpose, so that resuming needs no generator state."""
        text = f"{self.config.training.seed}/{self.step}/{stream}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:7], "big")

    def _canary(self, valid_rate: float) -> str:
        """Follows the valid rate; a message where it collapsed, else an empty string."""
        if math.isnan(valid_rate):
            return ""
        before = self._valid_average
        self._valid_average = valid_rate if before is None else 0.8 * before + 0.2 * valid_rate
        self._best_valid = max(self._best_valid, self._valid_average)
        floor = COLLAPSE_RATIO * self._best_valid
        if self.step <= COLLAPSE_PATIENCE or self._valid_average >= floor or self._best_valid < 0.2:
            return ""
        return (
            f"step {self.step}: valid workflows fell to {self._valid_average:.0%} (running average), from "
            f"{self._best_valid:.0%} at best; go on from an earlier checkpoint in "
            f"{self.parts.checkpoint_dir} with a lower training.learning_rate "
            f"(now {self.config.training.learning_rate}) or a higher training.beta (now {self.config.training.beta})"
        )

    def _alarming(self, alarms: Sequence[object]) -> str:
        """Tells the audit's alarms; a message where they are to stop the run, else an empty string."""
        for alarm in alarms:
            logger.warning("step %d: %s", self.step, alarm)
        return f"step {self.step}: {alarms[0]}" if alarms and self.config.judge.audit_action == "stop" else ""

    def _state(self) -> checkpoint.TrainingState:
        buffer = self.parts.buffer
        return checkpoint.TrainingState(
            step=self.step,
            random_states=checkpoint.random_states(),
            sampler=copy.deepcopy(dict(self.parts.sampler.state_dict())),
            buffer={} if buffer is None else copy.deepcopy(dict(buffer.state_dict())),
            counters={
                "updates": self.updater.updates,
                "valid_average": self._valid_average,
                "best_valid": self._best_valid,
                "audit": {} if self.parts.audit is None else copy.deepcopy(dict(self.parts.audit.state_dict())),
            },
        )
