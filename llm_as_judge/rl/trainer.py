"""The GRPO loop: sample, prompt, generate, execute and judge, advantages, update, remember, checkpoint.

All parts are handed in. A step is one batch of problems, which ``rl.pipeline`` brings executed and judged; all its
prompts are built before its first token is generated, so the examples in them are frozen for the batch. Only the update
(``rl.update``) touches weights, and what follows it up to the finished step is one piece of work for the device's
thread, so an interruption leaves the last finished step, which is then written.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path

from llm_as_judge.config.schema import Config
from llm_as_judge.errors import BudgetSpent
from llm_as_judge.events import AuditEvent, CheckpointEvent, EvalEvent, StepReport
from llm_as_judge.llm.places import Load
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.credit import CreditedGroup, credit
from llm_as_judge.rl.parts import TrainerParts
from llm_as_judge.rl.pipeline import Pipeline, seed_of
from llm_as_judge.rl.report import Timer, Use, log_step, step_report
from llm_as_judge.rl.schedule import sampling_at
from llm_as_judge.rl.update import TrainingStopped, Updater
from llm_as_judge.types import Group

logger = logging.getLogger(__name__)

#: A run stops where the average valid rate falls below this share of its best, but not in its first steps.
COLLAPSE_RATIO = 0.5
COLLAPSE_PATIENCE = 5


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
        self.updater = Updater(parts.policy, config.training, parts.ranks)
        self.pipeline = Pipeline(parts, config)
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
        self.pipeline.restore(state.pending)
        checkpoint.restore_random_states(state.random_states)
        self._finished = self._state()

    async def train(self, num_steps: int | None = None) -> StepReport | None:
        """Runs ``num_steps`` more steps (default: up to ``max_steps`` in all) and returns the last one's
        report.

        Interrupted (Ctrl-C, cancellation, a part's error), it writes the last finished step before it gives
        way. Raises ``TrainingStopped`` where the policy collapsed, ``BudgetSpent``, ``InfrastructureError`` where
        too little can be scored for too long.
        """
        config = self.config.training
        steps = max(0, config.max_steps - self.step) if num_steps is None else num_steps
        end = max(config.max_steps, self.step + steps)
        report = None
        try:
            await self.parts.device.run(self.updater.share_state)
            self.pipeline.open()
            for _ in range(steps):
                if spent := self.parts.spent():
                    at = f"after step {self.step}, which is saved" if self.step else "before the first step"
                    raise BudgetSpent(f"stopped {at}: {spent}")
                report = await self._one_step(end)
                if config.save_every and self.step % config.save_every == 0:
                    await self.parts.device.run(self.save)
                if self.parts.on_step is not None:
                    self.parts.on_step(report)
                every = config.eval_every
                if self.parts.evaluate is not None and every and self.step % every == 0:
                    self.parts.log(EvalEvent(step=self.step, scores=await self.parts.evaluate(self.step)))
        except TrainingStopped:
            raise
        except (KeyboardInterrupt, asyncio.CancelledError, Exception):
            if self.updater.unsettled:
                logger.warning("stopped inside an update: the last checkpoint on disk stands")
            else:
                await self._save_on_the_way_out()
            raise
        finally:
            await self.pipeline.close()
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
        self.parts.log(CheckpointEvent(step=state.step, path=str(path)))
        return path

    async def _save_on_the_way_out(self) -> None:
        """What ended the run matters more than a disk that is full, too.

        In the device's thread, where a second Ctrl-C does not reach it: launchers and schedulers pass on each signal.
        """
        try:
            await self.parts.device.run(self.save)
        except OSError as error:
            if self._saved != self._finished.step:  # else it was the log's line alone
                logger.warning("step %d could not be written: %s", self._finished.step, error)

    async def _one_step(self, end: int) -> StepReport:
        parts, config, timer = self.parts, self.config.training, Timer()
        meter = _Meter(parts)
        await self.pipeline.fill(self.step, end, timer)
        groups = await self.pipeline.next(timer)
        credited = self._credit(groups)
        # DAPO's dynamic sampling (arXiv 2503.14476): groups that teach nothing are drawn anew, a few times.
        for refill in range(1, config.refill_rounds + 1):
            missing = config.rollout_batch_size - sum(c.contrast for c in credited)
            if missing <= 0:
                break
            groups += await self.pipeline.more(self.step, missing, refill, timer)
            credited = self._credit(groups)
        return await parts.device.run(self._learn, groups, credited, timer, meter)

    def _learn(
        self, groups: Sequence[Group], credited: Sequence[CreditedGroup], timer: Timer, meter: _Meter
    ) -> StepReport:
        """The update and all that belongs to the step after it."""
        parts, config, version = self.parts, self.config.training, self.step
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
            version=version,
            use=meter.read(timer.seconds["update"]),
        )
        figures, alarms = parts.audit.step(groups) if parts.audit is not None else ({}, ())
        collapse = self._canary(report.valid_rate) or self._alarming(alarms)
        if not collapse:
            self._finished = self._state()
            self.updater.settle()
        # The step is finished: where the disk has no room for what follows, it is still saved on the way out.
        if parts.buffer is not None:
            parts.buffer.save()
        log_step(parts.log, credited, report)
        if parts.audit is not None:
            parts.log(AuditEvent(step=self.step, domains=figures, alarms=[str(alarm) for alarm in alarms]))
        if collapse:
            raise TrainingStopped(collapse)
        return report

    def _credit(self, groups: Sequence[Group]) -> list[CreditedGroup]:
        config = self.config.training
        shuffled = seed_of(config.seed, self.step, 1) if config.shuffle_rewards else None
        return credit(groups, config.scale_rewards, shuffled)

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
            pending=self.pipeline.state(),
            counters={
                "updates": self.updater.updates,
                "valid_average": self._valid_average,
                "best_valid": self._best_valid,
                "audit": {} if self.parts.audit is None else copy.deepcopy(dict(self.parts.audit.state_dict())),
            },
        )


class _Meter:
    """What device and executor were used for since it was made."""

    def __init__(self, parts: TrainerParts) -> None:
        self._parts = parts
        self._begun, self._busy_s, self._load = time.perf_counter(), parts.device.busy_s, _load(parts)

    def read(self, more_s: float) -> Use:
        """``more_s`` are seconds of the device's work that is not over."""
        seconds = time.perf_counter() - self._begun
        before, now = self._load, _load(self._parts)
        use = Use(device_busy=(self._parts.device.busy_s - self._busy_s + more_s) / seconds)
        if before is None or now is None:
            return use
        waited, requests = now.waited_s - before.waited_s, now.requests - before.requests
        slots = (now.used_s - before.used_s) / seconds
        return dataclasses.replace(use, executor_slots=slots, slot_wait_s=waited / requests if requests else 0.0)


def _load(parts: TrainerParts) -> Load | None:
    return None if parts.load is None else parts.load()
