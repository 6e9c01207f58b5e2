"""The GRPO loop. ``Trainer._step`` is one training step, from sampling to the log.

All components are passed in (``rl.parts``). Prompts of a batch are built before its first token is sampled, so their
examples are the same for the whole batch. Only the update (``rl.update``) changes weights; everything from the update
to the log is one piece of work on the device's thread. An interruption therefore leaves the last finished step, which
is then saved.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from llm_as_judge.config.schema import Config
from llm_as_judge.errors import BudgetSpent
from llm_as_judge.events import AuditEvent, CheckpointEvent, EvalEvent, StepReport
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.credit import CreditedGroup, credit
from llm_as_judge.rl.parts import TrainerParts
from llm_as_judge.rl.pipeline import Pipeline, sampling_at, seed_of
from llm_as_judge.rl.report import Timer, Use, log_step, step_report
from llm_as_judge.rl.update import TrainingStopped, Updater
from llm_as_judge.types import Group

logger = logging.getLogger(__name__)

#: A run stops if the running average of the valid rate falls below this share of its maximum, after the first steps.
COLLAPSE_RATIO = 0.5
COLLAPSE_PATIENCE = 5
#: A run stops after this many steps in a row without a valid workflow and without contrast: nothing was learned.
FRUITLESS_STEPS = 5


class Trainer:
    """``train`` runs steps; ``resume`` continues from a checkpoint, bit for bit if the components are deterministic."""

    def __init__(self, parts: TrainerParts, config: Config) -> None:
        self.parts = parts
        self.config = config
        self.step = 0  # finished steps; also the version of the policy's weights
        self._valid_average: float | None = None
        self._best_valid = 0.0
        self._fruitless = 0  # such steps in a row, since the start or the resume
        self.updater = Updater(parts.policy, config.training, parts.ranks)
        self.pipeline = Pipeline(parts, config)
        self._saved = 0
        self._finished = self._state()

    async def train(self, num_steps: int | None = None) -> StepReport | None:
        """Runs ``num_steps`` more steps (default: up to ``max_steps``) and returns the report of the last one.

        If interrupted (Ctrl-C, cancellation, an error), it saves the last finished step first. Raises
        ``TrainingStopped`` if the policy collapsed or cannot begin to learn, ``BudgetSpent``, and
        ``InfrastructureError`` if too many rollouts stay unscored.
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
                report = await self._step(end)
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
                logger.warning("stopped during an update; the last checkpoint on disk remains")
            else:
                await self._save_after_error()
            raise
        finally:
            await self.pipeline.close()
        self.save()
        return report

    async def _step(self, end: int) -> StepReport:
        """One step of a run of ``end`` steps: sample, run, judge, reward, credit, update, remember, log."""
        parts, config, version = self.parts, self.config.training, self.step
        timer, meter, sampling = Timer(), _Meter(parts), sampling_at(self.config, self.step)
        # Sample; each workflow is run, judged and rewarded as soon as it is complete (``rl.rollout.roll_out``).
        groups = await self.pipeline.next(version, end, timer)
        credited = self._credit(groups)
        # DAPO's dynamic sampling (arXiv 2503.14476): groups without contrast are replaced.
        for refill in range(1, config.refill_rounds + 1):
            missing = config.rollout_batch_size - sum(c.contrast for c in credited)
            if missing <= 0:
                break
            groups += await self.pipeline.more(version, missing, refill, timer)
            credited = self._credit(groups)

        def finish() -> StepReport:
            with timer.phase("update"):
                update = self.updater.update(_to_train_on(credited, config.rollout_batch_size), sampling, version)
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
            problem = self._collapse(report.valid_rate) or self._standstill(report, groups) or self._alarm(alarms)
            if not problem:
                self._finished = self._state()
                self.updater.settle()
            # From here on the step is finished. If the disk is full, it is still saved on the way out.
            if parts.buffer is not None:
                parts.buffer.save()
            log_step(parts.log, credited, report)
            if parts.audit is not None:
                parts.log(AuditEvent(step=self.step, domains=figures, alarms=[str(alarm) for alarm in alarms]))
            if problem:
                raise TrainingStopped(problem)
            return report

        return await parts.device.run(finish)

    def _credit(self, groups: Sequence[Group]) -> list[CreditedGroup]:
        config = self.config.training
        shuffled = seed_of(config.seed, self.step, 1) if config.shuffle_rewards else None
        return credit(groups, config.scale_rewards, shuffled)

    def _collapse(self, valid_rate: float) -> str:
        """Updates the running valid rate; returns a message if it collapsed, else an empty string."""
        if math.isnan(valid_rate):
            return ""
        before = self._valid_average
        self._valid_average = valid_rate if before is None else 0.8 * before + 0.2 * valid_rate
        self._best_valid = max(self._best_valid, self._valid_average)
        floor = COLLAPSE_RATIO * self._best_valid
        if self.step <= COLLAPSE_PATIENCE or self._valid_average >= floor or self._best_valid < 0.2:
            return ""
        return (
            f"step {self.step}: valid workflows fell to {self._valid_average:.0%} (running average) from "
            f"{self._best_valid:.0%} at best; resume from an earlier checkpoint in "
            f"{self.parts.checkpoint_dir} with a lower training.learning_rate "
            f"(now {self.config.training.learning_rate}) or a higher training.beta (now {self.config.training.beta})"
        )

    def _standstill(self, report: StepReport, groups: Sequence[Group]) -> str:
        """Counts fruitless steps; returns a message after the last that is accepted, else an empty string."""
        if math.isnan(report.valid_rate):
            return ""
        fruitless = not report.valid_rate and report.skipped_groups == report.groups
        self._fruitless = self._fruitless + 1 if fruitless else 0
        if self._fruitless < FRUITLESS_STEPS:
            return ""
        reasons = Counter(rollout.execution.error for group in groups for rollout in group.rollouts)
        reason, count = reasons.most_common(1)[0]
        return (
            f"step {self.step}: no valid workflow and no group with contrast for {FRUITLESS_STEPS} steps, so that "
            f"nothing can be learned; the most frequent error ({count} of {report.rollouts}): {reason[:300]!r}. "
            "llm-as-judge analyze sums up the errors in the log, doctor --policy shows what the policy writes. Warm it "
            f"up first (llm-as-judge warmup), change generation.temperature (now {report.temperature:g}), or check the "
            "prompt (workflow.*, experience_buffer.*) and the model"
        )

    def _alarm(self, alarms: Sequence[object]) -> str:
        """Logs the audit's alarms; returns a message if they are configured to stop the run, else an empty string."""
        for alarm in alarms:
            logger.warning("step %d: %s", self.step, alarm)
        return f"step {self.step}: {alarms[0]}" if alarms and self.config.judge.audit_action == "stop" else ""

    def resume(self, path: Path) -> None:
        """Restores everything from a checkpoint. Raises ``DataError`` or ``ConfigError`` if it does not fit."""
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

    def save(self) -> Path | None:
        """Writes the last finished step, unless there is none or it is saved already."""
        state, parts = self._finished, self.parts
        if state.step == self._saved:
            return None
        path = checkpoint.save(
            parts.checkpoint_dir,
            parts.policy,
            self.updater.optimizer,
            state,
            config_text=parts.config_text,
            run_id=parts.run_id,
        )
        self._saved = state.step
        parts.log(CheckpointEvent(step=state.step, path=str(path)))
        return path

    async def _save_after_error(self) -> None:
        """Saves on the device's thread, which a second Ctrl-C does not reach: launchers send signals repeatedly."""
        try:
            await self.parts.device.run(self.save)
        except OSError as error:  # must not hide the error that ended the run
            if self._saved != self._finished.step:  # else only the log could not be written
                logger.warning("step %d could not be saved: %s", self._finished.step, error)

    def _state(self) -> checkpoint.TrainingState:
        buffer, audit = self.parts.buffer, self.parts.audit
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
                "audit": {} if audit is None else copy.deepcopy(dict(audit.state_dict())),
            },
        )


def _to_train_on(credited: Sequence[CreditedGroup], size: int) -> list[CreditedGroup]:
    """``size`` groups in their order, preferring those with contrast; so replaced groups do not count in the loss."""
    preferred = sorted(range(len(credited)), key=lambda i: (not credited[i].contrast, i))[:size]
    return [credited[i] for i in sorted(preferred)]


class _Meter:
    """Usage of device and executor since this object was created."""

    def __init__(self, parts: TrainerParts) -> None:
        self._parts = parts
        self._start, self._busy_s = time.perf_counter(), parts.device.busy_s
        self._load = parts.load() if parts.load else None

    def read(self, running_s: float) -> Use:
        """``running_s``: seconds of device work that has not ended yet."""
        seconds = time.perf_counter() - self._start
        busy = (self._parts.device.busy_s - self._busy_s + running_s) / seconds
        if self._parts.load is None or self._load is None:
            return Use(busy)
        now, before = self._parts.load(), self._load
        requests = now.requests - before.requests
        waited = (now.waited_s - before.waited_s) / requests if requests else 0.0
        return Use(busy, (now.used_s - before.used_s) / seconds, waited)
