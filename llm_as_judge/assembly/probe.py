"""Checks before the first step: does the policy write valid workflows, and still with examples in its prompt?

Without valid workflows the rewards of a group are equal and nothing is learned. A very small policy, or one trained on
prompts without examples, may write nothing valid with one; a run would notice only when its buffer has filled.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from llm_as_judge.assembly.problems import Problems
from llm_as_judge.config.schema import Config
from llm_as_judge.evaluation.evaluate import PolicyAuthor
from llm_as_judge.evaluation.metrics import Estimate, accuracy
from llm_as_judge.evaluation.written import Written, look_at
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.rl.stops import COLLAPSE_RATIO
from llm_as_judge.types import Problem, Prompt, Question
from llm_as_judge.workflow.shapes import SHAPES, Example, workflow

#: Problems per domain, and workflows per problem.
PROBLEMS = 4
SAMPLES = 2


def probe_policy(author: PolicyAuthor, problems: Problems) -> Written:
    """What ``author`` writes for a few training problems per domain; the sampler does not advance."""
    return look_at(author, [problem.question for problem in problems.sampler.peek(PROBLEMS)], SAMPLES)


@dataclass(frozen=True, slots=True)
class ExamplesProbe:
    """Share of valid workflows for the same problems, with at most ``examples`` examples in the prompt and without."""

    examples: int
    shown: Estimate
    without: Estimate

    @property
    def harmful(self) -> bool:
        """The share falls to less than half, by more than chance."""
        fallen = self.shown.value < COLLAPSE_RATIO * self.without.value
        return fallen and self.shown.high < self.without.low

    def __str__(self) -> str:
        return (
            f"{self.without.value:.0%} of the policy's workflows are valid without examples in its prompt, but "
            f"{self.shown.value:.0%} with {self.examples}: it will not learn once the buffer has examples. To "
            "collect them without showing any: --set experience_buffer.top_k=0"
        )


def probe_examples(config: Config, author: PolicyAuthor, problems: Sequence[Problem]) -> ExamplesProbe | None:
    """Write workflows for ``problems`` with and without ``experience_buffer.top_k`` examples.

    The examples are hand-written workflows of different plans for others of the ``problems``. None if no examples are
    shown, or no prompt fits ``training.prompt_max_length``.
    """
    buffer, training = config.experience_buffer, config.training
    if not buffer.enabled or not buffer.top_k:
        return None
    operators = load_operators(config.workflow.operators)
    plans = [plan for plan in SHAPES.values() if set(plan.operators.values()) <= set(operators)]
    asked: list[Question] = []
    with_examples: list[Prompt] = []
    for question in (problem.question for problem in problems):
        others = [p.question for p in problems if p.question.domain == question.domain and p.question is not question]
        pairs = zip(itertools.cycle(others), plans, strict=False) if others else ()
        examples = [Example(q.statement, workflow(plan, q.domain)) for q, plan in itertools.islice(pairs, buffer.top_k)]
        prompts = author.prompt(question), author.prompt(question, examples)
        if examples and all(len(author.policy.encode(p)) <= training.prompt_max_length for p in prompts):
            asked.append(question)
            with_examples.append(prompts[1])
    if not asked:
        return None
    shown, without = look_at(author, asked, SAMPLES, with_examples), look_at(author, asked, SAMPLES)
    return ExamplesProbe(buffer.top_k, _valid(shown), _valid(without))


def _valid(written: Written) -> Estimate:
    return accuracy([i < sum(written.shapes.values()) for i in range(written.workflows)])
