"""The reward: the weighted sum of the terms.

    total = 0.65 correctness + 0.15 efficiency + 0.10 simplicity + 0.05 format - 0.05 repetition

less ``repair_cost`` for each repair of the workflow, so that a clean first attempt is always the best.
With these weights the best total is 9.5 and no wrong answer reaches a right one's total; weights that would allow it
are refused. A run without an answer (invalid, raised, over time or budget) gets the worst value of every term, -3.75 in
all. An unscored rollout (unknown verdict, infrastructure fault) gets no total.
"""

from llm_as_judge.config.schema import RewardConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.rewards.terms import RIGHT, TERMS, WRONG
from llm_as_judge.types import Reward, Rollout


class RewardFunction:
    """The reward as configured, for workflows that are repaired up to ``repairs`` times.

    Raises ``ConfigError`` if a wrong answer could outscore a right one.
    """

    def __init__(self, config: RewardConfig, repairs: int = 0) -> None:
        self._config = config
        self._weights = weights = dict(config.reward_weights)
        if unknown := next((term for term in weights if term not in TERMS), None):
            raise ConfigError(f"reward.reward_weights: there is no term {unknown!r}, only {', '.join(TERMS)}")
        others = 10.0 * sum(weight for term, weight in weights.items() if term != "correctness")
        distance = (RIGHT - WRONG) * weights["correctness"] - others
        if distance <= 0:
            raise ConfigError(
                f"reward_weights {weights} let a wrong answer outscore a right one; "
                f"raise correctness above {others / (RIGHT - WRONG):.3g}"
            )
        if (spent := config.repair_cost * repairs) >= distance:
            raise ConfigError(
                f"reward.repair_cost={config.repair_cost:g} times workflow.repairs={repairs} lets a wrong answer "
                f"outscore a right one; lower it below {distance / repairs:.3g}"
            )
        #: What may be added to or taken from any total before a wrong answer reaches a right one: half of the distance
        #: between the worst right and the best wrong total.
        self.slack = (distance - spent) / 2

    def __call__(self, rollout: Rollout) -> Reward:
        """Compute the terms and their total; no total if it is unknown whether the answer is right."""
        finished, config = rollout.valid, self._config
        if rollout.execution.outcome == "fault" or (finished and rollout.verdict.correct is None):
            return Reward(None)
        terms = {name: term.measure(rollout, config) if finished else term.worst for name, term in TERMS.items()}
        total = sum(TERMS[name].sign * self._weights.get(name, 0.0) * value for name, value in terms.items())
        return Reward(total - config.repair_cost * len(rollout.attempts), terms)
