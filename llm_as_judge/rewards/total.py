"""The reward: five terms on their own scales and their weighted sum, one table for training and logs.

    total = 0.65 correctness + 0.15 efficiency + 0.10 simplicity + 0.05 format - 0.05 repetition

With these weights the best is 9.5, and no wrong answer reaches a right one's total: weights that would allow
it are refused. A run without an answer (invalid, raised, over time or budget) gets the worst value of every
term, so that nothing scores below it; what is our fault (unknown verdict, infrastructure) gets no total at
all.
"""

from __future__ import annotations

from collections.abc import Mapping

from llm_as_judge.config.schema import RewardConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.rewards.correctness import RIGHT, WRONG, correctness
from llm_as_judge.rewards.efficiency import efficiency
from llm_as_judge.rewards.format import answer_format
from llm_as_judge.rewards.repetition import repetition
from llm_as_judge.rewards.simplicity import simplicity
from llm_as_judge.types import Completion, Execution, Problem, Reward, Verdict

#: Each term's worst value, which an unfinished run gets; repetition is subtracted.
WORST: Mapping[str, float] = {
    "correctness": WRONG,
    "efficiency": 0.0,
    "simplicity": 0.0,
    "format": 0.0,
    "repetition": 10.0,
}


class RewardFunction:
    """Raises ``ConfigError`` for weights under which a wrong answer could outscore a right one."""

    def __init__(self, config: RewardConfig) -> None:
        weights: dict[str, float] = {str(term): weight for term, weight in config.reward_weights.items()}
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
            terms = dict(WORST)
        else:
            terms = {
                "correctness": correctness(bool(verdict.correct)),
                "efficiency": efficiency(execution.tokens, self._config.token_budget),
                "simplicity": simplicity(len(execution.calls), self._config.operator_budget),
                "format": answer_format(execution.answer, problem.question.domain, execution.findings),
                "repetition": repetition(execution.calls, completion.text),
            }
        signs = {"repetition": -1.0}
        return Reward(sum(signs.get(term, 1.0) * self._weights[term] * terms[term] for term in WORST), terms)
