"""Custom reward functions: plain functions with TRL's signatures, sync or async.

    def brevity(completions, **kwargs) -> list[float | None]:
        return [1.0 if len(text) < 400 else 0.0 for text in completions]

``reward.functions`` names them as ``package.module:function`` or ``file.py:function``, with a weight. One call sees a
step's workflows; arguments are passed by name, as in TRL 1.16 (``GRPOTrainer``, ``reward_funcs``), each a list with an
item per workflow (``_columns``). None leaves the function out of that workflow's reward; where a function fails, the
rollout is unscored. The functions' total is limited to ``RewardFunction.slack``, so that no wrong answer outranks a
right one.
"""

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llm_as_judge.config.schema import RewardConfig
from llm_as_judge.rewards.functions import Failed, OwnFunction, question_columns
from llm_as_judge.types import Reward, Rollout

logger = logging.getLogger(__name__)


def load_rewards(config: RewardConfig, limit: float) -> "CustomRewards | None":
    """Load the functions of ``reward.functions``, if there are any. Raises ``ConfigError``."""
    columns, timeout_s = _columns(()), config.function_timeout_s
    functions = {
        name: (OwnFunction("reward.functions", name, columns, timeout_s), weight)
        for name, weight in config.functions.items()
    }
    return CustomRewards(functions, limit) if functions else None


@dataclass(frozen=True, slots=True)
class CustomRewards:
    """``functions`` by name with their weights; together they add or subtract at most ``limit``."""

    functions: Mapping[str, tuple[OwnFunction, float]]
    limit: float

    async def add(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Add each function's value as a term to ``rollouts``, and the weighted sum to the total.

        Unscored rollouts stay unscored. Raises ``ConfigError`` for a function that returns anything but a number or
        None for each workflow.
        """
        columns = _columns([rollout for rollout in rollouts if rollout.reward.total is not None])
        found = await asyncio.gather(*(function.values(columns) for function, _ in self.functions.values()))
        values = (dict(zip(self.functions, own, strict=True)) for own in zip(*found, strict=True))
        return [one if one.reward.total is None else self._changed(one, next(values)) for one in rollouts]

    async def try_out(self, rollout: Rollout) -> None:
        """Raise ``ConfigError`` before a run for a function that cannot be used."""
        for function, _ in self.functions.values():
            await function.try_out(_columns([rollout, rollout]))

    def _changed(self, rollout: Rollout, values: Mapping[str, float | Failed | None]) -> Rollout:
        if failed := next((value for value in values.values() if isinstance(value, Failed)), None):
            verdict = replace(rollout.verdict, correct=None, tier="none", reason=failed.reason)
            return replace(rollout, verdict=verdict, reward=Reward(None))
        terms = {name: value for name, value in values.items() if isinstance(value, float)}
        added = sum(self.functions[name][1] * value for name, value in terms.items())
        if abs(added) > self.limit:
            asked, added = added, math.copysign(self.limit, added)
            name = rollout.problem.question.id
            logger.warning("reward.functions add %.3g to %s: limited to %.3g", asked, name, added)
        assert rollout.reward.total is not None
        return replace(rollout, reward=Reward(rollout.reward.total + added, {**rollout.reward.terms, **terms}))


def _columns(rollouts: Sequence[Rollout]) -> dict[str, list[Any]]:
    """Build all arguments."""
    return {
        **question_columns([r.problem for r in rollouts]),
        "completions": [r.completion.text for r in rollouts],
        "completion_ids": [list(r.completion.token_ids) for r in rollouts],
        "outcome": [r.execution.outcome for r in rollouts],
        "answer": [r.execution.answer for r in rollouts],
        "correct": [r.verdict.correct for r in rollouts],
        "tokens": [r.tokens for r in rollouts],
        "operators": [[c.name for c in r.execution.calls] for r in rollouts],
    }
