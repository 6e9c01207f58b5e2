"""Batches before the update: drawn, prompted and sampled, then run and judged in the background.

With ``training.lookahead`` d, up to d batches are ahead of the update, so that policy and executor work at the same
time. Results never depend on timing: batch t is sampled by the weights of step max(0, t - d), the device works in a
fixed order (sample batches 0 to d, update 0, sample batch d + 1, update 1, ...), and the update takes whole batches in
order. Slow workflows are never dropped: they make more calls, and training would learn to avoid them. Checkpoints hold
pending batches as plain data; after a resume their workflows run again, nothing is sampled twice.

Repairs (``workflow.repairs``) have fixed places as well, and use the weights of their batch's first turn. Those of
workflows that will not run are sampled at once. Those that need a run are sampled when every run of their batch has
ended: in the step of the batch or, with ``lookahead``, in the step after its first turn, when a further batch already
keeps the executor busy; the weights of the step before are kept for that.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from llm_as_judge.config.schema import TrainingConfig
from llm_as_judge.data.sampler import DomainSampler
from llm_as_judge.errors import DataError
from llm_as_judge.events import PromptEvent, PromptTooLongEvent, StepReport
from llm_as_judge.llm.concurrency import Load
from llm_as_judge.policy.chat import Encoder
from llm_as_judge.policy.device import on_device
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.rl.buffer import ExperienceBuffer
from llm_as_judge.rl.report import Log, Timer
from llm_as_judge.rl.rollout import Collector, Engine, Episode, Place, RolloutParts, next_turns, refuse, to_repair
from llm_as_judge.rl.update import Learner
from llm_as_judge.seeds import derived_seed
from llm_as_judge.types import Attempt, Completion, Group, OnCompletion, Problem, Prompt, Question
from llm_as_judge.workflow.prompt import Layer1

#: Of the adapter.
Weights = Sequence[Tensor]
#: Attempts to draw problems whose prompts fit.
MAX_REDRAWS = 20


@dataclass(frozen=True, slots=True)
class TrainerParts:
    """Everything that ``Trainer`` uses except its settings."""

    policy: Encoder
    learner: Learner
    engine: Engine
    sampling: Sampling
    sampler: DomainSampler
    prompt: Layer1
    buffer: ExperienceBuffer
    rollout: RolloutParts
    log: Log
    checkpoint_dir: Path
    on_step: Callable[[StepReport], None] = lambda report: None
    evaluate: Callable[[int], Awaitable[Mapping[str, float]]] | None = None  # validation, logged as it is
    config_text: str = ""  # saved with every checkpoint
    run_id: str = ""
    load: Callable[[], Load] | None = None  # usage of the executor's connections so far
    spent: Callable[[], str] = str  # which budget is used up; empty if none


@dataclass(frozen=True, slots=True)
class Sampled:
    """Problems with their sampled workflows.

    ``attempts`` are the earlier ones of each episode, ``turns`` the number of times that repairs were sampled.
    """

    problems: Sequence[Problem]
    completions: Sequence[Sequence[Completion]]
    step: int = 0  # that trains on it
    version: int = 0  # of the weights
    attempts: Sequence[Sequence[tuple[Attempt, ...]]] = ()
    turns: int = 0
    refill: int = 0
    unrepaired: bool = False  # repairs that need a run are still to come

    def started(self, collector: Collector) -> Collector:
        """Start all workflows in ``collector``, except those that it has already."""
        for place, group in enumerate(self.completions):
            for member in range(len(group)):
                collector.start(place, member, *self.episode(place, member))
        return collector

    def episode(self, place: int, member: int) -> Episode:
        """Return the turns of an episode so far, and the attempts that failed."""
        return self.completions[place][member], self.attempts[place][member] if self.attempts else ()


class Pipeline:
    """Samples and runs batches. Use one event loop from ``open`` to ``close``; pending batches outlive it."""

    def __init__(self, parts: TrainerParts, config: TrainingConfig) -> None:
        self._parts = parts
        self._config = config
        self._pending: deque[Sampled] = deque()
        self._running: deque[Collector] = deque()  # of the pending batches, in their order
        self._limit = asyncio.Semaphore(parts.rollout.concurrency)
        self._kept: Weights = ()  # weights of the step before, for unrepaired batches

    def open(self) -> None:
        """Start the workflows of pending batches."""
        self._limit = asyncio.Semaphore(self._parts.rollout.concurrency)
        for batch in self._pending:
            self._running.append(batch.started(self._collector(batch)))

    async def close(self) -> None:
        while self._running:
            await self._running.popleft().aclose()

    async def next(self, step: int, end: int, timer: Timer) -> list[Group]:
        """Return the batch of ``step``, executed and judged.

        First samples batches with the current weights until ``training.lookahead`` further ones are pending, but none
        of step ``end`` or later.
        """
        last = min(step + self._config.lookahead, end - 1)
        while (ahead := step + len(self._pending)) <= last:
            batch, collector = await self._sample(ahead, step, self._config.rollout_batch_size, 0, timer)
            self._pending.append(batch)
            self._running.append(collector)
        await self._repair_due(step, timer)
        with timer.phase("execute"):
            groups = await self._running[0].groups()
        self._pending.popleft()
        self._running.popleft()
        return groups

    async def more(self, step: int, count: int, refill: int, timer: Timer) -> list[Group]:
        """Sample ``count`` more groups for ``step``, executed and judged; ``refill`` numbers the calls of a step."""
        batch, collector = await self._sample(step, step, count, refill, timer)
        if batch.unrepaired:
            await self._repair(batch, collector, timer)
        with timer.phase("execute"):
            return await collector.groups()

    def state(self) -> list[dict[str, Any]]:
        kept = {"weights": list(self._kept)} if self._kept else {}
        return [msgspec.to_builtins(batch) | (kept if batch.unrepaired else {}) for batch in self._pending]

    def restore(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Replace the pending batches; ``open`` starts them."""
        self._kept = next((list(batch["weights"]) for batch in state if "weights" in batch), ())
        self._pending = deque(msgspec.convert(batch, Sampled) for batch in state)

    async def _sample(self, step: int, version: int, size: int, refill: int, timer: Timer) -> tuple[Sampled, Collector]:
        """Sample a batch for ``step`` by the weights ``version``. Each workflow starts as soon as it is sampled."""
        parts, config = self._parts, self._config
        loop = asyncio.get_running_loop()
        drawn = await on_device(timer.phase("prompt")(self._draw), step, size)
        problems = [problem for problem, _, _ in drawn]
        await on_device(timer.phase("sync")(parts.engine.sync), parts.policy, version)
        repairs = parts.rollout.repairs
        batch = Sampled(problems, (), step, version, refill=refill, unrepaired=repairs > 0)
        collector = self._collector(batch)

        def start(place: int, member: int, completion: Completion) -> None:
            completion = replace(completion, prefill=drawn[place][2])
            if not (repairs and refuse(problems[place], completion, parts.rollout)):
                loop.call_soon_threadsafe(collector.start, place, member, completion)

        try:
            work = timer.phase("generate")(self._generate)
            prompts = [ids for _, ids, _ in drawn]
            found = await on_device(work, batch, prompts, config.num_return_sequences_in_group, start)
            completions = [[replace(c, prefill=p) for c in group] for group, (*_, p) in zip(found, drawn, strict=True)]
            batch = replace(batch, completions=completions)
            if repairs:
                places = [(place, member) for place, group in enumerate(completions) for member in range(len(group))]
                batch = await self._rewritten(batch, places, timer)
        except BaseException:
            await collector.aclose()
            raise
        return batch, batch.started(collector)  # for engines that do not call ``on_completion``, and repairs

    async def _repair_due(self, step: int, timer: Timer) -> None:
        """Repair the batch of ``step``, and others that older weights sampled; keep today's weights for the rest."""
        for i, batch in enumerate(self._pending):
            if batch.unrepaired and (i == 0 or batch.version < step):
                assert batch.version >= step - 1, "only the weights of the step before are kept"
                weights = self._kept if batch.version < step else ()
                self._pending[i] = await self._repair(batch, self._running[i], timer, weights)
        kept = self._parts.policy.trainable_parameters if any(batch.unrepaired for batch in self._pending) else ()
        self._kept = [parameter.detach().clone() for parameter in kept]

    async def _repair(self, batch: Sampled, collector: Collector, timer: Timer, weights: Weights = ()) -> Sampled:
        """Do all repairs of ``batch``, which run in ``collector``; ``weights``: of the policy's adapter then."""
        while True:
            with timer.phase("execute"):
                failed = await collector.failed()
            if not failed:
                return replace(batch, unrepaired=False)
            batch = await self._turn(batch, failed, timer, weights)
            batch = await self._rewritten(batch, list(failed), timer, weights)
            for place, member in failed:
                collector.retry((place, member), *batch.episode(place, member))

    async def _rewritten(self, batch: Sampled, places: Sequence[Place], timer: Timer, weights: Weights = ()) -> Sampled:
        """Rewrite workflows of ``batch`` at ``places`` that will not run, as often as repairs allow."""
        rollout = self._parts.rollout
        while True:
            refused = {}
            for place, member in places:
                problem, (completion, attempts) = batch.problems[place], batch.episode(place, member)
                if len(attempts) < rollout.repairs:
                    attempt = refuse(problem, completion, rollout)
                    if attempt and (failed := await to_repair(attempt, problem, rollout)):
                        refused[place, member] = failed
            if not refused:
                return batch
            batch = await self._turn(batch, refused, timer, weights)

    async def _turn(self, batch: Sampled, failed: Mapping[Place, Attempt], timer: Timer, weights: Weights) -> Sampled:
        """Add another turn to the episodes of ``batch`` that ``failed``, by the adapter's ``weights``."""
        parts, batch = self._parts, replace(batch, turns=batch.turns + 1)

        def sample() -> list[Completion]:
            with parts.policy.holding(weights) if weights else nullcontext():
                parts.engine.sync(parts.policy, batch.version)
                return next_turns(
                    parts.policy,
                    partial(self._generate, batch),
                    [batch.episode(*key)[0] for key in failed],
                    [attempt.told for attempt in failed.values()],
                )

        sampled = await on_device(timer.phase("generate")(sample))
        completions = [list(group) for group in batch.completions]
        attempts = [list(group) for group in batch.attempts] or [[()] * len(group) for group in batch.completions]
        for ((place, member), attempt), completion in zip(failed.items(), sampled, strict=True):
            completions[place][member] = completion
            attempts[place][member] = (*attempts[place][member], attempt)
        return replace(batch, completions=completions, attempts=attempts)

    def _generate(
        self, batch: Sampled, prompts: Sequence[Sequence[int]], n: int = 1, start: OnCompletion | None = None
    ) -> list[list[Completion]]:
        seed = derived_seed(self._config.seed, batch.step, "completions", batch.refill, batch.turns)
        return self._parts.engine.generate(
            prompts, n, sampling=self._parts.sampling, max_new_tokens=self._config.response_max_length,
            seed=seed, on_completion=start,
        )  # fmt: skip

    def _collector(self, batch: Sampled) -> Collector:
        parts = self._parts.rollout
        seed = derived_seed(self._config.seed, batch.step, "rollouts", batch.refill)
        repairs = parts.repairs if batch.unrepaired else 0
        return Collector(batch.problems, parts, seed, limit=self._limit, common_seeds=True, repairs=repairs)

    def _draw(self, step: int, count: int) -> list[tuple[Problem, list[int], str]]:
        """Draw problems, each with its prompt's token ids and the prefill of its reply.

        A problem whose prompt is too long is replaced: cutting the prompt would hide parts of the problem.
        """
        drawn: list[tuple[Problem, list[int], str]] = []
        longest, limit = 0, self._config.prompt_max_length
        for _ in range(MAX_REDRAWS):
            for problem in self._parts.sampler.sample(count - len(drawn)):
                prompt, ids = self._prompt(problem.question, step + 1)
                if len(ids) <= limit:
                    drawn.append((problem, ids, prompt.prefill))
                else:
                    longest = max(longest, len(ids))
                    self._parts.log(PromptTooLongEvent(step=step + 1, problem=problem.question.id, tokens=len(ids)))
            if len(drawn) == count:
                return drawn
        raise DataError(
            f"after {MAX_REDRAWS} draws too few prompts fit training.prompt_max_length={limit} "
            f"(longest without examples: {longest} tokens); raise it"
        )

    def _prompt(self, question: Question, step: int) -> tuple[Prompt, list[int]]:
        """Build the prompt of ``question``, with as many of the buffer's best examples as fit, and its token ids."""
        parts = self._parts
        examples = parts.buffer.examples(question)
        for shown in range(len(examples), -1, -1):
            prompt = parts.prompt(question, examples[:shown])
            if len(ids := parts.policy.encode(prompt)) <= self._config.prompt_max_length:
                break
        asked, user = question.statement, prompt.user
        parts.log(PromptEvent(step=step, problem=question.id, question=asked, user=user, examples=shown))
        return prompt, ids
