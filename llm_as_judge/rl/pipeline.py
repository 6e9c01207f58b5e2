"""Batches before the update: drawn, prompted and sampled, then run and judged in the background.

With ``training.lookahead`` d, up to d batches are ahead of the update, so that policy and executor work at the same
time. Results never depend on timing: batch t is sampled by the weights of step max(0, t - d), the device works in a
fixed order (sample batches 0 to d, update 0, sample batch d + 1, update 1, ...), and the update takes whole batches in
order. Slow workflows are never dropped: they make more calls, and training would learn to avoid them. Checkpoints hold
pending batches as plain data; after a resume their workflows run again, nothing is sampled twice.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from llm_as_judge.config.schema import Config
from llm_as_judge.data.sampler import DomainSampler
from llm_as_judge.errors import DataError
from llm_as_judge.events import PromptTooLongEvent, StepReport
from llm_as_judge.llm.places import Load
from llm_as_judge.policy.device import on_device
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.rl.buffer import ExperienceBuffer
from llm_as_judge.rl.ranks import ALONE, Ranks
from llm_as_judge.rl.report import Log, Timer
from llm_as_judge.rl.rollout import Collector, Engine, RolloutParts
from llm_as_judge.types import Completion, Group, Problem, Prompt, Question

#: Attempts to draw problems whose prompts fit.
MAX_REDRAWS = 20


@dataclass(frozen=True, slots=True)
class TrainerParts:
    """Everything that ``Trainer`` uses except the settings. This process is rank 0 of ``ranks``."""

    policy: Policy
    engine: Engine
    sampler: DomainSampler
    build_prompt: Callable[[Question, int], Prompt]  # of a problem, for the step that trains on it
    rollout: RolloutParts
    log: Log
    checkpoint_dir: Path
    buffer: ExperienceBuffer | None = None
    on_step: Callable[[StepReport], None] | None = None
    evaluate: Callable[[int], Awaitable[Mapping[str, float]]] | None = None  # validation, logged as it is
    config_text: str = ""  # saved with every checkpoint
    run_id: str = ""
    load: Callable[[], Load] | None = None  # usage of the executor's connections so far
    spent: Callable[[], str] = str  # which budget is used up; empty if none
    ranks: Ranks = ALONE


@dataclass(frozen=True, slots=True)
class Batch:
    """Problems with their sampled workflows; ``seed`` is for the executor's requests."""

    problems: Sequence[Problem]
    completions: Sequence[Sequence[Completion]]
    seed: int


class Pipeline:
    """Samples and runs batches. Use one event loop from ``open`` to ``close``; pending batches outlive it."""

    def __init__(self, parts: TrainerParts, config: Config) -> None:
        self._parts = parts
        self._config = config
        self.sampling = Sampling(config.generation.temperature, config.generation.top_p, config.generation.top_k)
        self._pending: deque[Batch] = deque()
        self._running: deque[Collector] = deque()  # of the pending batches, in their order
        self._limit = asyncio.Semaphore(parts.rollout.concurrency)

    def open(self) -> None:
        """Starts the workflows of pending batches."""
        self._limit = asyncio.Semaphore(self._parts.rollout.concurrency)
        for batch in self._pending:
            collector = self._collector(batch.problems, batch.seed)
            _start(collector, batch)
            self._running.append(collector)

    async def close(self) -> None:
        while self._running:
            await self._running.popleft().aclose()

    async def next(self, step: int, end: int, timer: Timer) -> list[Group]:
        """The batch of ``step``, executed and judged.

        First samples batches with the current weights until ``training.lookahead`` further ones are pending, but none
        of step ``end`` or later.
        """
        last = min(step + self._config.training.lookahead, end - 1)
        while (ahead := step + len(self._pending)) <= last:
            size = self._config.training.rollout_batch_size
            batch, collector = await self._sample(ahead, step, size, 0, timer)
            self._pending.append(batch)
            self._running.append(collector)
        with timer.phase("execute"):
            groups = await self._running[0].groups()
        self._pending.popleft()
        self._running.popleft()
        return groups

    async def more(self, step: int, count: int, refill: int, timer: Timer) -> list[Group]:
        """``count`` additional groups for ``step``, executed and judged; ``refill`` numbers the calls of a step."""
        _, collector = await self._sample(step, step, count, refill, timer)
        with timer.phase("execute"):
            return await collector.groups()

    def state(self) -> list[dict[str, Any]]:
        return [msgspec.to_builtins(batch) for batch in self._pending]

    def restore(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Replaces the pending batches; ``open`` starts them."""
        self._pending = deque(msgspec.convert(batch, Batch) for batch in state)

    async def _sample(self, step: int, version: int, count: int, refill: int, timer: Timer) -> tuple[Batch, Collector]:
        """A batch for ``step`` by the current weights, ``version``. Each workflow starts as soon as it is sampled."""
        parts, training = self._parts, self._config.training
        loop = asyncio.get_running_loop()
        problems, prompts, prefills = await on_device(timer.timed("prompt", self._draw), step, count)
        await on_device(timer.timed("sync", parts.engine.sync), parts.policy, version)
        seed = seed_of(training.seed, step, -1 - refill)
        collector = self._collector(problems, seed)

        def start(place: int, member: int, completion: Completion) -> None:
            completion = replace(completion, prefill=prefills[place])
            loop.call_soon_threadsafe(collector.start, place, member, completion)

        try:
            sampled = await on_device(
                timer.timed("generate", parts.engine.generate),
                prompts,
                training.num_return_sequences_in_group,
                sampling=self.sampling,
                max_new_tokens=training.response_max_length,
                seed=seed_of(training.seed, step, 0 if not refill else 1 + refill),  # 1: shuffled rewards
                on_completion=start,
            )
        except BaseException:
            await collector.aclose()
            raise
        completions = [[replace(c, prefill=p) for c in group] for group, p in zip(sampled, prefills, strict=True)]
        batch = Batch(problems, completions, seed)
        _start(collector, batch)  # for engines that do not call ``on_completion``
        return batch, collector

    def _collector(self, problems: Sequence[Problem], seed: int) -> Collector:
        return Collector(problems, self._parts.rollout, seed, limit=self._limit, common_seeds=True)

    def _draw(self, step: int, count: int) -> tuple[list[Problem], list[list[int]], list[str]]:
        """Problems, the token ids of their prompts, and the prefills of their replies.

        A problem whose prompt is too long is replaced: cutting the prompt would hide parts of the problem.
        """
        problems: list[Problem] = []
        prompts: list[list[int]] = []
        prefills: list[str] = []
        longest, limit = 0, self._config.training.prompt_max_length
        for _ in range(MAX_REDRAWS):
            for problem in self._parts.sampler.sample(count - len(problems)):
                prompt = self._parts.build_prompt(problem.question, step + 1)
                ids = self._parts.policy.encode(prompt)
                if len(ids) <= limit:
                    problems.append(problem)
                    prompts.append(ids)
                    prefills.append(prompt.prefill)
                else:
                    longest = max(longest, len(ids))
                    self._parts.log(PromptTooLongEvent(step=step + 1, problem=problem.question.id, tokens=len(ids)))
            if len(problems) == count:
                return problems, prompts, prefills
        raise DataError(
            f"after {MAX_REDRAWS} draws too few prompts fit training.prompt_max_length={limit} "
            f"(longest: {longest} tokens); raise it or lower experience_buffer.top_k"
        )


def seed_of(seed: int, step: int, stream: int) -> int:
    """An independent seed for every step and purpose, so that resuming needs no generator state."""
    digest = hashlib.sha256(f"{seed}/{step}/{stream}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def _start(collector: Collector, batch: Batch) -> None:
    for place, group in enumerate(batch.completions):
        for member, completion in enumerate(group):
            collector.start(place, member, completion)
