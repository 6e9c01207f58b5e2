"""From problems and completions to judged, rewarded groups.

Every workflow runs and is judged as soon as its turn comes, all at once up to a bound. The policy's failures
are scored; ours (``InfrastructureError``) leave a rollout unscored. The policy's text is unwrapped, never
repaired.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from llm_as_judge.answers.code import first_block
from llm_as_judge.errors import InfrastructureError
from llm_as_judge.judging.judge import JudgeLike
from llm_as_judge.llm import derived_seed
from llm_as_judge.types import Completion, Execution, Group, Problem, Question, Reward, Rollout, Verdict


class Engine(Protocol):
    """Samples completions; ``sync`` brings it to the given weights."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        n: int = 1,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        max_new_tokens: int = 1024,
        seed: int = 0,
    ) -> list[list[Completion]]: ...

    def sync(self, policy: object, version: int) -> None: ...


class Runner(Protocol):
    """``workflow.run.WorkflowRunner``. It gets the question, never the reference."""

    async def run(self, source: str, question: Question, seed: int | None = None) -> Execution: ...


class RewardLike(Protocol):
    def __call__(
        self,
        problem: Problem,
        completion: Completion,
        execution: Execution,
        verdict: Verdict,
    ) -> Reward: ...


class GroupRewards(Protocol):
    """Rewards that look at a whole step, added once every workflow has its own."""

    async def add(self, groups: Sequence[Group]) -> list[Group]: ...


@dataclass(frozen=True, slots=True)
class RolloutParts:
    """What turns a workflow's text into a reward.

    ``truncated``: a workflow cut off at the length limit is run as it is, gets the floor without running, or is masked
    (unscored, out of the update).
    """

    runner: Runner
    judge: JudgeLike
    reward: RewardLike
    concurrency: int = 32
    truncated: Literal["run", "floor", "mask"] = "run"
    extra: GroupRewards | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError(f"concurrency must be >= 1, got {self.concurrency}")


_THINKING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


def extract_code(text: str, prefill: str = "") -> str:
    """The workflow in a completion: its first Python fence, or the whole text where there is none.

    ``prefill`` is how the reply began in the prompt; a fence that it opened needs no closing.

    A leading thinking block is wrapping, not code. A fence that is never closed stays as it is: the text is the
    policy's, and so is the mistake.
    """
    if prefill:
        whole = prefill + text
        code = first_block(whole)
        return whole.removeprefix("```python\n") if code == whole else code
    text = _THINKING.sub("", text, count=1).strip()
    return first_block(text)


async def collect(
    problems: Sequence[Problem],
    completions: Sequence[Sequence[Completion]],
    parts: RolloutParts,
    on_rollout: Callable[[int, int, Rollout], None] = lambda place, member, rollout: None,
    *,
    seed: int = 0,
) -> list[Group]:
    """Runs, judges and rewards ``completions[i]`` on ``problems[i]``; groups and rollouts keep their order.

    ``on_rollout`` gets every rollout as soon as it is done, with its problem's place and its own in the group.

    Equal workflows of one problem run separately, since the executor may be stochastic; its seeds derive from ``seed``,
    the problem and the place in the group. Errors other than ``InfrastructureError`` are bugs: they travel, after the
    remaining tasks were cancelled.
    """
    limit = asyncio.Semaphore(parts.concurrency)

    async def one(place: int, member: int, completion: Completion) -> Rollout:
        problem = problems[place]
        async with limit:
            rollout = await roll_out(problem, completion, parts, derived_seed(seed, problem.question.id, member))
        on_rollout(place, member, rollout)
        return rollout

    tasks = [
        [asyncio.ensure_future(one(place, member, completion)) for member, completion in enumerate(group)]
        for place, group in enumerate(completions)
    ]
    flat = [task for group in tasks for task in group]
    try:
        await asyncio.gather(*flat)
    except BaseException:
        for task in flat:
            task.cancel()
        await asyncio.gather(*flat, return_exceptions=True)
        raise
    groups = [
        Group(problem, tuple(task.result() for task in group)) for problem, group in zip(problems, tasks, strict=True)
    ]
    return groups if parts.extra is None else await parts.extra.add(groups)


async def roll_out(problem: Problem, completion: Completion, parts: RolloutParts, seed: int | None = None) -> Rollout:
    """One workflow from text to reward."""
    workflow = extract_code(completion.text, completion.prefill)
    if completion.finish_reason == "length" and parts.truncated != "run":
        error = f"cut off after {len(completion.token_ids)} tokens; training.response_max_length sets the limit"
        cut = Execution("invalid", None, error=error)
        verdict = Verdict(False, "none", reason="truncated")
        masked = parts.truncated == "mask"
        reward = Reward(None) if masked else parts.reward(problem, completion, cut, verdict)
        return Rollout(problem, completion, workflow, cut, verdict, reward)
    try:
        execution = await parts.runner.run(workflow, problem.question, seed)
    except InfrastructureError as error:
        execution = Execution("fault", None, error=f"{type(error).__name__}: {error}")
    verdict = await _verdict(problem, execution, parts.judge)
    reward = parts.reward(problem, completion, execution, verdict)
    return Rollout(problem, completion, workflow, execution, verdict, reward)


async def _verdict(problem: Problem, execution: Execution, judge: JudgeLike) -> Verdict:
    if execution.outcome == "fault":
        return Verdict(None, "none", reason=execution.error)
    if execution.outcome != "finished":
        return Verdict(False, "none", reason=execution.outcome)
    try:
        return await judge.verdict(problem, execution.answer, execution.cut_off)
    except InfrastructureError as error:
        return Verdict(None, "none", reason=f"{type(error).__name__}: {error}")
