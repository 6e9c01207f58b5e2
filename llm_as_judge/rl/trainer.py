"""The GRPO loop. ``Trainer._step`` is one training step, from sampling to the log.

All components are passed in (``TrainerParts``). Prompts of a batch are built before its first token is sampled, so
their examples are the same for the whole batch. Only the update (``rl.update``) changes weights. From update to log, a
step is one uninterrupted call on the device's thread, so the last finished step can be saved after an interruption.
"""

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from llm_as_judge.config.schema import TrainingConfig
from llm_as_judge.errors import BudgetSpent, ProviderError
from llm_as_judge.events import CheckpointEvent, EvalEvent, StepReport
from llm_as_judge.files import write_json
from llm_as_judge.policy.device import on_device
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.credit import CreditedGroup, credit
from llm_as_judge.rl.pipeline import Pipeline, TrainerParts
from llm_as_judge.rl.report import Meter, Timer, log_step, step_report
from llm_as_judge.rl.stops import Stops
from llm_as_judge.rl.update import Batch, TrainingStopped
from llm_as_judge.seeds import derived_seed
from llm_as_judge.types import Group

logger = logging.getLogger(__name__)


class Trainer:
    """Runs steps (``train``) and continues from a checkpoint (``resume``), bit for bit if components are
    deterministic.
    """

    def __init__(self, parts: TrainerParts, config: TrainingConfig) -> None:
        self.parts, self.config = parts, config
        self.step = 0  # finished steps; also the version of the policy's weights
        self.learner = parts.learner
        self.pipeline = Pipeline(parts, config)
        self.stops = Stops(config)
        self._saved = 0
        self._finished = self._state()

    async def train(self, num_steps: int | None = None) -> StepReport | None:
        """Run ``num_steps`` more steps (default: up to ``max_steps``) and return the report of the last one.

        If interrupted (Ctrl-C, cancellation, an error), it saves the last finished step first. Raises
        ``TrainingStopped`` if the policy collapsed or cannot begin to learn, ``BudgetSpent``, and
        ``InfrastructureError`` if too many rollouts stay unscored.
        """
        parts, config = self.parts, self.config
        steps = max(0, config.max_steps - self.step) if num_steps is None else num_steps
        end = max(config.max_steps, self.step + steps)
        report = None
        try:
            await on_device(self.learner.optimizer.share)
            self.pipeline.open()
            for _ in range(steps):
                if spent := parts.spent():
                    at = f"after step {self.step}, which is saved" if self.step else "before the first step"
                    raise BudgetSpent(f"stopped {at}: {spent}")
                report = await self._step(end)
                if config.save_every and self.step % config.save_every == 0:
                    await on_device(self.save)
                parts.on_step(report)
                if parts.evaluate is not None and config.eval_every and self.step % config.eval_every == 0:
                    await self._validate(parts.evaluate)
        except (KeyboardInterrupt, asyncio.CancelledError, Exception):
            if self.learner.unsettled:
                logger.warning("this step is not saved; --resume continues from the last checkpoint, if there is one")
            else:
                # On the device's thread, which a second Ctrl-C does not reach: launchers send signals repeatedly.
                try:
                    await on_device(self.save)
                except (OSError, ProviderError) as error:  # must not hide the error that ended the run
                    if self._saved != self._finished.step:  # else only the log could not be written
                        logger.warning("step %d could not be saved: %s", self._finished.step, error)
            raise
        finally:
            await self.pipeline.close()
        self.save()
        return report

    async def _validate(self, evaluate: Callable[[int], Awaitable[Mapping[str, float]]]) -> None:
        scores = await evaluate(self.step)
        self.parts.log(EvalEvent(step=self.step, scores=scores))
        if (saved := self.parts.checkpoint_dir / f"step_{self.step}").is_dir():
            write_json(saved / checkpoint.VALIDATION, scores)

    async def _step(self, end: int) -> StepReport:
        """Run one step of a run of ``end`` steps: sample, run, judge, reward, credit, update, remember, log."""
        parts, config, version, timer = self.parts, self.config, self.step, Timer()
        meter = Meter(timer, parts.load)
        # Sample; each workflow is run, judged and rewarded as soon as it is complete (``rl.rollout``).
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
                # Replaced groups do not count in the loss: those with contrast are preferred, in their order.
                preferred = sorted(range(len(credited)), key=lambda i: (not credited[i].contrast, i))
                chosen = sorted(preferred[: config.rollout_batch_size])
                batch = Batch.of([credited[i] for i in chosen], version, config)
                update = self.learner.update(batch, parts.sampling, version)
            self.step += 1
            parts.buffer.update(groups, self.step)
            report = step_report(
                self.step,
                credited,
                update,
                version=version,
                learning_rate=self.learner.optimizer.learning_rate,
                temperature=parts.sampling.temperature,
                refilled_groups=len(groups) - config.rollout_batch_size,
                seconds=dict(timer.seconds),
                **meter.read(),
            )
            stop = self.stops.after(report, groups)
            if not stop:
                self._finished = self._state()
            self.learner.unsettled = bool(stop)
            # From here on the step is finished. If the disk is full, it is still saved on the way out.
            parts.buffer.save()
            log_step(parts.log, credited, report)
            if stop:
                raise TrainingStopped(stop)
            return report

        return await on_device(finish)

    def _credit(self, groups: Sequence[Group]) -> list[CreditedGroup]:
        config = self.config
        shuffled = derived_seed(config.seed, self.step, "rewards") if config.shuffle_rewards else None
        return credit(groups, config.scale_rewards, shuffled)

    def resume(self, path: Path) -> None:
        """Restore everything from a checkpoint. Raises ``DataError`` or ``ConfigError`` if it does not fit."""
        parts, optimizer = self.parts, self.learner.optimizer
        state = checkpoint.load(path, optimizer)
        self.step = self._saved = state.step
        optimizer.steps = state.counters["updates"]
        self.stops.load_state_dict(state.counters)
        parts.sampler.load_state_dict(state.sampler)
        if state.buffer:
            parts.buffer.load_state_dict(state.buffer)
            parts.buffer.save()
        self.pipeline.restore(state.pending)
        checkpoint.restore_random_states(state.random_states)
        self._finished = self._state()

    def save(self) -> None:
        """Write the last finished step, unless there is none or it is saved already."""
        state, parts = self._finished, self.parts
        if state.step == self._saved:
            return
        about = {"config_text": parts.config_text, "run_id": parts.run_id}
        path = checkpoint.save(parts.checkpoint_dir, self.learner.optimizer, state, **about)
        self._saved = state.step
        parts.log(CheckpointEvent(step=state.step, path=str(path)))
        if self.config.keep_checkpoints:
            checkpoint.prune(parts.checkpoint_dir, self.config.keep_checkpoints)

    def _state(self) -> checkpoint.TrainingState:
        return checkpoint.TrainingState(
            step=self.step,
            random_states=checkpoint.random_states(),
            sampler=copy.deepcopy(dict(self.parts.sampler.state_dict())),
            buffer=copy.deepcopy(dict(self.parts.buffer.state_dict())),
            pending=self.pipeline.state(),
            counters={"updates": self.learner.optimizer.steps, **self.stops.state_dict()},
        )
