"""Batches on their way from the sampler to the update, up to ``training.lookahead`` of them ahead of it.

The policy and the executor work at the same time, and yet nothing depends on timing: batch t is always drawn, prompted
and sampled by the weights of step t - d (or those of the start), the device does one thing after the other in a fixed
order (sample batches 0 to d, update 0, sample d + 1, update 1, ...), and batches are trained on in their order, whole.
Nothing slow is cut off and nothing stale is dropped: slow workflows are those with more calls, and leaving them out
would teach short ones. What is pending is plain data, from which its workflows can be run again without sampling
anything twice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from llm_as_judge.config.schema import Config
from llm_as_judge.errors import DataError
from llm_as_judge.events import PromptTooLongEvent
from llm_as_judge.rl.parts import TrainerParts
from llm_as_judge.rl.report import Timer
from llm_as_judge.rl.rollout import Collector
from llm_as_judge.rl.schedule import sampling_at
from llm_as_judge.types import Completion, Group, Problem, Question, Reference

#: Draws of a problem whose prompt fits, before the data are declared unfit.
MAX_REDRAWS = 20


@dataclass(frozen=True, slots=True)
class Batch:
    """Problems with their sampled workflows. ``seed`` is of the executor's sampling."""

    problems: Sequence[Problem]
    completions: Sequence[Sequence[Completion]]
    seed: int

    def as_plain(self) -> dict[str, Any]:
        """Mappings, lists, texts and numbers alone; a group's prompt is told once."""
        groups = [[{**_fields(c), "prompt_ids": None} for c in group] for group in self.completions]
        return {
            "problems": [asdict(problem) for problem in self.problems],
            "prompts": [list(group[0].prompt_ids) for group in self.completions],
            "completions": groups,
            "seed": self.seed,
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Batch:
        """The inverse of ``as_plain``."""
        return cls(
            [Problem(Question(**p["question"]), Reference(**p["reference"])) for p in plain["problems"]],
            [
                [Completion(**{**fields, "prompt_ids": tuple(prompt)}) for fields in group]
                for group, prompt in zip(plain["completions"], plain["prompts"], strict=True)
            ],
            plain["seed"],
        )


class Pipeline:
    """``open`` it in the event loop that is to run the workflows, ``close`` it there; what is pending outlives that."""

    def __init__(self, parts: TrainerParts, config: Config) -> None:
        self._parts = parts
        self._config = config
        self._pending: deque[Batch] = deque()
        self._under_way: deque[Collector] = deque()
        self._limit = asyncio.Semaphore(parts.rollout.concurrency)

    def open(self) -> None:
        """Runs the workflows of what is pending."""
        self._limit = asyncio.Semaphore(self._parts.rollout.concurrency)
        for batch in self._pending:
            collector = self._collector(batch.problems, batch.seed)
            _start(collector, batch)
            self._under_way.append(collector)

    async def close(self) -> None:
        """Ends the workflows that are under way."""
        while self._under_way:
            await self._under_way.popleft().aclose()

    async def fill(self, step: int, end: int, timer: Timer) -> None:
        """Samples batches, none of step ``end`` or later, until those of ``step`` and ``training.lookahead`` more are
        pending.

        The policy's weights are those after ``step`` finished steps.
        """
        last = min(step + self._config.training.lookahead, end - 1)
        while (ahead := step + len(self._pending)) <= last:
            size = self._config.training.rollout_batch_size
            batch, collector = await self._sample(ahead, step, size, 0, timer)
            self._pending.append(batch)
            self._under_way.append(collector)

    async def next(self, timer: Timer) -> list[Group]:
        """The oldest batch, executed and judged."""
        with timer.phase("execute"):
            groups = await self._under_way[0].groups()
        self._pending.popleft()
        self._under_way.popleft()
        return groups

    async def more(self, step: int, count: int, refill: int, timer: Timer) -> list[Group]:
        """``count`` more problems for ``step``, sampled by its own weights; ``refill`` tells the times apart."""
        _, collector = await self._sample(step, step, count, refill, timer)
        with timer.phase("execute"):
            return await collector.groups()

    def state(self) -> list[dict[str, Any]]:
        """What is pending, as plain data."""
        return [batch.as_plain() for batch in self._pending]

    def restore(self, state: Sequence[Mapping[str, Any]]) -> None:
        """What is pending is what ``state`` says, none of it begun."""
        self._pending = deque(map(Batch.of, state))

    async def _sample(self, step: int, version: int, count: int, refill: int, timer: Timer) -> tuple[Batch, Collector]:
        """A batch for ``step`` by the present weights, ``version``. Its workflows run as they are written."""
        parts, training = self._parts, self._config.training
        run, loop = parts.device.run, asyncio.get_running_loop()
        with timer.phase("prompt"):
            problems, prompts, prefills = await run(self._draw, step, count)
        with timer.phase("sync"):
            await run(parts.engine.sync, parts.policy, version)
        seed = seed_of(training.seed, step, -1 - refill)
        collector = self._collector(problems, seed)

        def begin(place: int, member: int, completion: Completion) -> None:
            begun = replace(completion, prefill=prefills[place])
            loop.call_soon_threadsafe(collector.start, place, member, begun)

        sampling = sampling_at(self._config, step)
        try:
            with timer.phase("generate"):
                sampled = await run(
                    parts.engine.generate,
                    prompts,
                    training.num_return_sequences_in_group,
                    temperature=sampling.temperature,
                    top_p=sampling.top_p,
                    top_k=sampling.top_k,
                    max_new_tokens=training.response_max_length,
                    seed=seed_of(training.seed, step, 0 if not refill else 1 + refill),  # 1: the control experiment's
                    on_completion=begin,
                )
        except BaseException:
            await collector.aclose()
            raise
        begun = [[replace(c, prefill=p) for c in group] for group, p in zip(sampled, prefills, strict=True)]
        batch = Batch(problems, begun, seed)
        _start(collector, batch)  # for engines that tell of nothing before the end
        return batch, collector

    def _collector(self, problems: Sequence[Problem], seed: int) -> Collector:
        return Collector(problems, self._parts.rollout, seed, limit=self._limit)

    def _draw(self, step: int, count: int) -> tuple[list[Problem], list[list[int]], list[str]]:
        """Problems, their prompts, and how the replies begin in these. One whose prompt is too long is drawn again, for
        cutting it would hide its parts.
        """
        problems: list[Problem] = []
        prompts: list[list[int]] = []
        prefills: list[str] = []
        longest, limit = 0, self._config.training.prompt_max_length
        for _ in range(MAX_REDRAWS):
            for problem in self._parts.sampler.sample(count - len(problems)):
                prompt = self._parts.build_prompt(problem.question)
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


def _start(collector: Collector, batch: Batch) -> None:
    for place, group in enumerate(batch.completions):
        for member, completion in enumerate(group):
            collector.start(place, member, completion)


def _fields(completion: Completion) -> dict[str, Any]:
    return {name: getattr(completion, name) for name in Completion.__dataclass_fields__}


def seed_of(seed: int, step: int, stream: int) -> int:
    """A seed of its own for every step and purpose, so that resuming needs no generator state."""
    digest = hashlib.sha256(f"{seed}/{step}/{stream}".encode()).digest()
    return int.from_bytes(digest[:7], "big")
