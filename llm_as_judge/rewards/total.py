"""The reward: five terms on their own scales and their weighted sum, one table for training and logs.

    total = 0.65 correctness + 0.15 efficiency + 0.10 simplicity + 0.05 format - 0.05 repetition

With these weights the best is 9.5, and no wrong answer reaches a right one's total: weights that would allow
it are refused. A run without an answer (invalid, raised, over time or budget) gets the worst value of every
term, so that nothing scores below it; what is our fault (unknown verdict, infrastructure) gets no total at
all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from llm_as_judge.config.schema import RewardConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.rewards.correctness import RIGHT, WRONG, correctness
from llm_as_judge.rewards.efficiency import efficiency
from llm_as_judge.rewards.format import answer_format
from llm_as_judge.rewards.repetition import repetition
from llm_as_judge.rewards.simplicity import simplicity
from llm_as_judge.types import Completion, Execution, Problem, Reward, Verdict


@dataclass(frozen=True, slots=True)
class Run:
    """What a term is computed from: a workflow that came to an answer."""

    problem: Problem
    completion: Completion
    execution: Execution
    verdict: Verdict
    config: RewardConfig


@dataclass(frozen=True, slots=True)
class Term:
    """``worst`` is what an unfinished run gets; ``sign`` is -1 for a penalty, whose weight is subtracted."""

    worst: float
    measure: Callable[[Run], float]
    sign: float = 1.0


#: By the names that ``reward.reward_weights`` takes; a term that it does not name weighs nothing.
TERMS: Mapping[str, Term] = {
    "correctness": Term(WRONG, lambda run: correctness(bool(run.verdict.correct))),
    "efficiency": Term(0.0, lambda run: efficiency(run.execution.tokens, run.config.token_budget)),
    "simplicity": Term(0.0, lambda run: simplicity(len(run.execution.calls), run.config.operator_budget)),
    "format": Term(
        0.0, lambda run: answer_format(run.execution.answer, run.problem.question.domain, run.execution.findings)
    ),
    "repetition": Term(10.0, lambda run: repetition(run.execution.calls, run.completion.text), sign=-1.0),
}


class RewardFunction:
    """Raises ``ConfigError`` for weights under which a wrong answer could outscore a right one."""

    def __init__(self, config: RewardConfig) -> None:
        weights = dict(config.reward_weights)
        if unknown := next((term for term in weights if term not in TERMS), None):
            raise ConfigError(f"reward.reward_weights: there is no term {unknown!r}, only {', '.join(TERMS)}")
        others = 10.0 * sum(weight for term, weight in weights.items() if term != "correctness")
        if (RIGHT - WRONG) * weights["correctness"] <= others:
            raise ConfigError(
                f"reward_weights {dict(weights)} let a wrong answer outscore a right one; "
                f"raise correctness above {others / (RIGHT - WRONG):.3g}"
            )
        self._config = config
        self._weights = weights

    @property
    def slack(self) -> float:
        """What may be added to any total and taken from any other before a wrong answer reaches a right one: half of
        the distance between the worst right and the best wrong total.
        """
        others = 10.0 * sum(weight for term, weight in self._weights.items() if term != "correctness")
        return ((RIGHT - WRONG) * self._weights["correctness"] - others) / 2

    def scaled(self, total: float) -> float:
        """``total`` between 0, the lowest there is, and 1, the highest. What a user's own functions add to those two is
        cut off.
        """
        terms = [(TERMS[name], weight) for name, weight in self._weights.items()]
        low = sum(term.sign * weight * term.worst for term, weight in terms)
        high = sum(RIGHT * weight for term, weight in terms if term.sign > 0)
        return min(1.0, max(0.0, (total - low) / (high - low)))

    def __call__(
        self,
        problem: Problem,
        completion: Completion,
        execution: Execution,
        verdict: Verdict,
    ) -> Reward:
        """The terms and their total; no total when nobody could tell whether the answer is right."""
        if execution.outcome == "fault" or (execution.outcome == "finished" and verdict.correct is None):
            return Reward(None)
        if execution.outcome != "finished":
            terms = {name: term.worst for name, term in TERMS.items()}
        else:
            run = Run(problem, completion, execution, verdict, self._config)
            terms = {name: term.measure(run) for name, term in TERMS.items()}
        weighted = (TERMS[name].sign * self._weights.get(name, 0.0) * value for name, value in terms.items())
        return Reward(sum(weighted), terms)
