"""Evaluation of workflows on problems nobody was trained on, by the benchmark's own metric.

One workflow is written for each problem, run, and judged by tests or rules; the reward plays no part. What failed for
our own reasons is left out of every mean and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from pydantic import ConfigDict, TypeAdapter, ValidationError

from llm_as_judge.config.schema import Config
from llm_as_judge.errors import DataError
from llm_as_judge.evaluation.metrics import Estimate, accuracy, mean
from llm_as_judge.files import write_whole
from llm_as_judge.rl.policy import Policy
from llm_as_judge.rl.rollout import Engine, RolloutParts, collect
from llm_as_judge.types import DOMAINS, Completion, Domain, Problem, Question, Rollout
from llm_as_judge.workflow.catalogue import name_of
from llm_as_judge.workflow.prompt import Layer1
from llm_as_judge.workflow.shape import shape

#: Prompts of one call of the engine.
_CHUNK = 64


class Author(Protocol):
    """Writes a workflow for each question."""

    def write(self, questions: Sequence[Question]) -> list[Completion]: ...


@dataclass(frozen=True, slots=True)
class PolicyAuthor:
    """The policy as the author, without examples from the buffer; the same seed writes the same workflows.

    ``version`` is that of the policy's weights, to which the engine is brought first.
    """

    policy: Policy
    engine: Engine
    prompt: Layer1
    config: Config
    version: int = 0

    def write(self, questions: Sequence[Question]) -> list[Completion]:
        generation, training = self.config.generation, self.config.training
        asked = [self.prompt(question) for question in questions]
        prompts = [self.policy.encode(prompt) for prompt in asked]
        self.engine.sync(self.policy, self.version)
        completions: list[Completion] = []
        for start in range(0, len(prompts), _CHUNK):
            groups = self.engine.generate(
                prompts[start : start + _CHUNK],
                temperature=generation.eval_temperature,
                top_p=generation.top_p,
                top_k=generation.top_k,
                max_new_tokens=training.response_max_length,
                seed=1_000_003 + training.seed + start,
            )
            completions += [group[0] for group in groups]
        return [replace(c, prefill=prompt.prefill) for c, prompt in zip(completions, asked, strict=True)]


@dataclass(frozen=True, slots=True)
class Given:
    """A workflow that is known beforehand, as the author."""

    source: Callable[[Question], str]

    def write(self, questions: Sequence[Question]) -> list[Completion]:
        return [Completion(self.source(question), (), (), (), "stop") for question in questions]


@dataclass(frozen=True, slots=True)
class Summary:
    """Shares in [0, 1] with 95 % intervals; ``tokens`` is executor tokens per problem."""

    overall: Estimate
    domains: dict[Domain, Estimate]
    valid_rate: Estimate
    tokens: float
    f1: float | None  # of qa problems, where the judge reports it
    unscored: int
    shapes: dict[Domain, dict[str, int]]  # workflows by plan, else by shape, most frequent first

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="constants")

    def as_json(self) -> dict[str, Any]:
        flat: dict[str, Any] = {"overall": self.overall.value, "valid_rate": self.valid_rate.value}
        flat |= {d: e.value for d, e in self.domains.items()}
        intervals: dict[str, Estimate] = {"overall": self.overall, "valid_rate": self.valid_rate}
        intervals |= {str(d): e for d, e in self.domains.items()}
        return {
            **flat,
            "interval": {name: [e.low, e.high] for name, e in intervals.items()},
            "problems": self.overall.n,
            "unscored": self.unscored,
            "executor_tokens": self.tokens,
            "qa_f1": self.f1,
            "shapes": self.shapes,
        }

    def save(self, path: Path) -> None:
        write_whole(path, TypeAdapter(Summary).dump_json(self).decode())

    @staticmethod
    def load(path: Path) -> Summary:
        """Raises ``DataError`` where ``save`` did not write it."""
        try:
            return TypeAdapter(Summary).validate_json(path.read_bytes())
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise DataError(f"{path} holds no evaluation: {reason}") from error


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One rollout for each problem, in order, and what they come to."""

    rollouts: Sequence[Rollout]
    summary: Summary


async def evaluate(
    problems: Sequence[Problem],
    author: Author,
    parts: RolloutParts,
    progress: Callable[[int], None] = lambda done: None,
) -> Evaluation:
    """Has ``author`` write a workflow for each problem, runs and judges it; ``progress`` gets the number done."""
    completions = author.write([p.question for p in problems])
    groups = await collect(problems, [[c] for c in completions], parts, progress)
    rollouts = [g.rollouts[0] for g in groups]
    return Evaluation(rollouts, summarise(rollouts))


def summarise(rollouts: Sequence[Rollout]) -> Summary:
    scored = [r for r in rollouts if r.verdict.correct is not None]
    by_domain = {d: [r for r in rollouts if r.problem.question.domain == d] for d in DOMAINS}
    present = {d: rs for d, rs in by_domain.items() if rs}
    runs = [r for r in rollouts if r.execution.outcome != "fault"]
    f1 = [r.verdict.score for r in scored if r.problem.question.domain == "qa" and r.verdict.score is not None]
    shapes: dict[Domain, dict[str, int]] = {}
    for domain, members in present.items():
        counted = Counter(name_of(r.workflow, domain) or shape(r.workflow) or "no operator" for r in members)
        shapes[domain] = dict(counted.most_common())
    return Summary(
        overall=accuracy([r.verdict.correct for r in rollouts]),
        domains={d: accuracy([r.verdict.correct for r in rs]) for d, rs in present.items()},
        valid_rate=accuracy([r.valid for r in runs]),
        tokens=mean([float(r.execution.tokens) for r in runs]),
        f1=mean(f1) if f1 else None,
        unscored=len(rollouts) - len(scored),
        shapes=shapes,
    )
