"""Evaluation of workflows on held-out problems.

One or several workflows are written for each problem, run, and judged by the official metric; the reward is not used.
Infrastructure faults are counted and left out of every mean.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from llm_as_judge.answers.metrics import scores as scores_of
from llm_as_judge.config.schema import Config
from llm_as_judge.data.catalog import metric_of
from llm_as_judge.evaluation.records import Ledger
from llm_as_judge.policy.chat import Encoder
from llm_as_judge.policy.device import on_device
from llm_as_judge.policy.limits import EVALUATED_AT_ONCE
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.rl.rollout import Engine, RolloutParts, collect, next_turns
from llm_as_judge.seeds import derived_seed
from llm_as_judge.types import Completion, Group, Problem, Question, Rollout
from llm_as_judge.workflow.prompt import Layer1

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: Stands for the workflow of a problem whose prompt is too long.
_TOO_LONG = "# not written: the prompt has {} tokens, training.prompt_max_length={}"


class Author(Protocol):
    """Writes ``samples`` workflows for each question; ``start`` is the number of questions asked before."""

    def write(self, questions: Sequence[Question], samples: int = 1, start: int = 0) -> list[list[Completion]]: ...


@dataclass(frozen=True, slots=True)
class PolicyAuthor:
    """The policy without examples from the buffer; the same seed gives the same workflows.

    ``version`` is the version of the policy's weights, to which the engine is synchronized first.
    """

    policy: Encoder
    engine: Engine
    prompt: Layer1
    config: Config
    version: int = 0

    def sampling(self, **changes: float) -> "PolicyAuthor":
        """Copy with other settings of the section ``generation``."""
        generation = self.config.generation.model_copy(update=changes)
        return replace(self, config=self.config.model_copy(update={"generation": generation}))

    def write(self, questions: Sequence[Question], samples: int = 1, start: int = 0) -> list[list[Completion]]:
        """Write completions, ``verbatim`` if the prompt exceeds ``training.prompt_max_length``: nothing is sampled."""
        asked = [self.prompt(question) for question in questions]
        ids = [self.policy.encode(prompt) for prompt in asked]
        limit = self.config.training.prompt_max_length
        if long := {i: len(prompt) for i, prompt in enumerate(ids) if len(prompt) > limit}:
            named = ", ".join(f"{questions[i].id} ({tokens} tokens)" for i, tokens in long.items())
            logger.warning(
                f"no workflow is written for {len(long)} of {len(ids)} problems, and they count as wrong; raise "
                f"training.prompt_max_length={limit}, which their prompts exceed: {named}"
            )
        fitting = [prompt for i, prompt in enumerate(ids) if i not in long]
        groups = iter(self._generate((start,), samples, fitting))
        return [
            _verbatim(_TOO_LONG.format(long[i], limit), samples)
            if i in long
            else [replace(completion, prefill=prompt.prefill) for completion in next(groups)]
            for i, prompt in enumerate(asked)
        ]

    def again(self, completions: Sequence[Completion], told: Sequence[str], start: int = 0) -> list[Completion]:
        """Add a repair turn to each of ``completions``, after what it is ``told``."""
        return next_turns(self.policy, partial(self._generate, (start, "repair"), 1), completions, told)

    def _generate(
        self, of: tuple[object, ...], samples: int, prompts: Sequence[Sequence[int]]
    ) -> list[list[Completion]]:
        generation, training = self.config.generation, self.config.training
        sampling = Sampling(generation.eval_temperature, generation.top_p, generation.top_k)
        self.engine.sync(self.policy, self.version)
        limit, seed = training.response_max_length, derived_seed(training.seed, "evaluation", *of)
        return self.engine.generate(prompts, samples, sampling=sampling, max_new_tokens=limit, seed=seed)


@dataclass(frozen=True, slots=True)
class Given:
    """A given workflow for each question."""

    source: Callable[[Question], str]

    def write(self, questions: Sequence[Question], samples: int = 1, start: int = 0) -> list[list[Completion]]:
        return [_verbatim(self.source(question), samples) for question in questions]


def _verbatim(text: str, samples: int) -> list[Completion]:
    return [Completion(text, (), (), (), "stop", verbatim=True)] * samples


async def evaluate(
    problems: Sequence[Problem], author: Author, parts: RolloutParts,
    progress: Callable[[int, int], None] = lambda done, total: None, *, samples: int = 1, log: Ledger | None = None,
) -> list[Group]:  # fmt: skip
    """Write, run and judge workflows for each problem: a group of ``samples`` rollouts for each, in order.

    With ``parts.repairs`` a policy repairs its failed workflows; those of an evaluation that was interrupted may be
    sampled in other batches. ``progress`` gets the number of finished ones and of all. A problem of which ``log``
    knows every sample is not run again; new records are added to what it knows.
    """
    known, members = log.known if log else {}, range(samples)
    unknown = {i for i in range(len(problems)) if not all((i, k) in known for k in members)}
    todo, done_before = sorted(unknown), [i for i in range(len(problems)) if i not in unknown]
    rollouts = {(i, k): replace(known[i, k], problem=problems[i]) for i in done_before for k in members}
    if rollouts:
        progress(len(rollouts), samples * len(problems))
    # Chunks do not depend on what is known, so that the same workflows are sampled.
    size, written = max(1, EVALUATED_AT_ONCE // samples), dict[int, list[Completion]]()
    for start in range(0, len(problems), size):
        part = range(start, min(start + size, len(problems)))
        if wanted := unknown.intersection(part):
            completions = await on_device(author.write, [problems[i].question for i in part], samples, start)
            written |= {i: completions[i - start] for i in wanted}

    def done(place: int, member: int, rollout: Rollout) -> None:
        index = todo[place]
        rollouts[index, member] = rollout = _scored(rollout)
        if log is not None:
            log.add(index, member, rollout)
        progress(len(rollouts), samples * len(problems))

    again = (lambda *turn: on_device(author.again, *turn)) if isinstance(author, PolicyAuthor) else None
    await collect([problems[i] for i in todo], [written[i] for i in todo], parts, done, again=again)
    return [Group(problem, [rollouts[i, k] for k in members]) for i, problem in enumerate(problems)]


async def all_of(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Gather the results in order; the first failure cancels the others."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _scored(rollout: Rollout) -> Rollout:
    """Score 0 for a rollout whose workflow failed, unless an infrastructure fault was the cause."""
    if rollout.verdict.correct is not False or rollout.valid:
        return rollout
    question, reference = rollout.problem.question, rollout.problem.reference
    scores = scores_of(metric_of(question), None, question, reference)
    return replace(rollout, verdict=replace(rollout.verdict, scores=scores))
