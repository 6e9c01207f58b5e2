"""Evaluation of a policy on problems it was not trained on, by the benchmark's own metric.

One workflow is sampled for each problem, run, and judged by tests or rules; the reward plays no part. What failed for
our own reasons is left out of every mean and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llm_as_judge.evaluation.metrics import Estimate, accuracy, mean
from llm_as_judge.rl.rollout import Engine, RolloutParts, collect, extract_code
from llm_as_judge.types import DOMAINS, Completion, Domain, Problem, Question, Rollout
from llm_as_judge.workflow.catalogue import name_of
from llm_as_judge.workflow.shape import shape

#: Prompts of one call of the engine.
_CHUNK = 64


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


@dataclass(frozen=True, slots=True)
class Sampled:
    """How workflows are sampled for an evaluation; the same seed gives the same workflows."""

    engine: Engine
    encode: Callable[[Question], Sequence[int]]
    temperature: float
    max_new_tokens: int
    top_p: float = 1.0
    top_k: int = 0
    special_tokens: Sequence[str] = ()
    seed: int = 0


async def evaluate_policy(
    problems: Sequence[Problem],
    sampled: Sampled,
    parts: RolloutParts,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Rollout]:
    """One rollout for each problem, in order."""
    rollouts: list[Rollout] = []
    for start in range(0, len(problems), _CHUNK):
        chunk = problems[start : start + _CHUNK]
        prompts = [sampled.encode(p.question) for p in chunk]
        completions = sampled.engine.generate(
            prompts,
            1,
            temperature=sampled.temperature,
            top_p=sampled.top_p,
            top_k=sampled.top_k,
            max_new_tokens=sampled.max_new_tokens,
            seed=sampled.seed + start,
        )
        groups = await collect(chunk, completions, parts, sampled.special_tokens)
        rollouts += [g.rollouts[0] for g in groups]
        progress(len(rollouts))
    return rollouts


async def evaluate_source(
    problems: Sequence[Problem], source: Callable[[Question], str], parts: RolloutParts
) -> list[Rollout]:
    """One rollout for each problem of a workflow that is given instead of sampled."""
    given = [[Completion(source(p.question), (), (), (), "stop")] for p in problems]
    return [g.rollouts[0] for g in await collect(problems, given, parts)]


def summarise(rollouts: Sequence[Rollout], special_tokens: Sequence[str] = ()) -> Summary:
    scored = [r for r in rollouts if r.verdict.correct is not None]
    by_domain = {d: [r for r in rollouts if r.problem.question.domain == d] for d in DOMAINS}
    present = {d: rs for d, rs in by_domain.items() if rs}
    runs = [r for r in rollouts if r.execution.outcome != "fault"]
    f1 = [r.verdict.score for r in scored if r.problem.question.domain == "qa" and r.verdict.score is not None]
    shapes: dict[Domain, dict[str, int]] = {}
    for domain, members in present.items():
        sources = [extract_code(r.completion.text, special_tokens) for r in members]
        counted = Counter(name_of(s, domain) or shape(s) or "no operator" for s in sources)
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
