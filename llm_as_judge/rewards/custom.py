"""Custom reward functions: plain functions with TRL's signatures, sync or async.

    def brevity(completions, **kwargs) -> list[float | None]:
        return [1.0 if len(text) < 400 else 0.0 for text in completions]

``reward.functions`` names them as ``package.module:function`` or ``file.py:function``, with a weight. One call sees a
step's workflows; arguments are passed by name, as in TRL 1.16 (``GRPOTrainer``, ``reward_funcs``), each a list with an
item per workflow (``_columns``). None leaves the function out of that workflow's reward. The functions' total is
limited to ``RewardFunction.slack``, so that no wrong answer outranks a right one.
"""

import inspect
import logging
import math
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, cast

from llm_as_judge.config.registry import lookup
from llm_as_judge.config.schema import RewardConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.types import Group, Reward, Rollout

logger = logging.getLogger(__name__)

Function = Callable[..., "list[float | None] | Awaitable[list[float | None]]"]


def load_function(name: str) -> Function:
    """The function of that name. Raises ``ConfigError`` if there is none, or if it asks for an unknown argument."""
    if ":" not in name:
        raise ConfigError(f"reward.functions: write package.module:function or file.py:function, got {name!r}")
    function = lookup("reward function", name, cast("Mapping[str, object]", {}))
    if not callable(function):
        raise ConfigError(f"reward.functions: {name!r} is not a function")
    parameters = inspect.signature(function).parameters.values()
    columns = _columns(())
    asked = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.default is p.empty]
    lacking = [p.name for p in asked if p.name not in columns or p.kind is p.POSITIONAL_ONLY]
    if lacking:
        raise ConfigError(
            f"reward.functions: {name!r} asks for {', '.join(lacking)}; parameters are passed by name, and there are "
            f"{', '.join(columns)}"
        )
    return cast(Function, function)


def load_rewards(config: RewardConfig, limit: float) -> "CustomRewards | None":
    """The functions of ``reward.functions``, if there are any. Raises ``ConfigError``."""
    functions = {name: (load_function(name), weight) for name, weight in config.functions.items()}
    return CustomRewards(functions, limit) if functions else None


@dataclass(frozen=True, slots=True)
class CustomRewards:
    """``functions`` by name with their weights; together they add or subtract at most ``limit``."""

    functions: Mapping[str, tuple[Function, float]]
    limit: float

    async def add(self, groups: Sequence[Group]) -> list[Group]:
        """``groups`` with each function's value as a term and the weighted sum in the total.

        Unscored rollouts stay unscored. Raises ``ConfigError`` for a function that raises, or returns anything but a
        number or None for each workflow.
        """
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        scored = [rollout for rollout in rollouts if rollout.reward.total is not None]
        values = {name: await _values(name, function, scored) for name, (function, _) in self.functions.items()}
        changed = {id(rollout): self._changed(rollout, values, i) for i, rollout in enumerate(scored)}
        return [Group(g.problem, tuple(changed.get(id(r), r) for r in g.rollouts)) for g in groups]

    def _changed(self, rollout: Rollout, values: Mapping[str, Sequence[float | None]], i: int) -> Rollout:
        terms = {name: value for name, column in values.items() if (value := column[i]) is not None}
        added = sum(self.functions[name][1] * value for name, value in terms.items())
        if abs(added) > self.limit:
            asked, added = added, math.copysign(self.limit, added)
            logger.warning(
                "reward.functions add %.3g to %s: limited to %.3g", asked, rollout.problem.question.id, added
            )
        assert rollout.reward.total is not None
        return replace(rollout, reward=Reward(rollout.reward.total + added, {**rollout.reward.terms, **terms}))


async def _values(name: str, function: Function, rollouts: Sequence[Rollout]) -> list[float | None]:
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    columns = {name: column for name, column in _columns(rollouts).items() if takes_all or name in named}
    try:
        result: Any = function(**columns)
        if inspect.isawaitable(result):
            result = await result
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        line = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"reward.functions: {name!r} raised {type(error).__name__}: {error} ({line.filename}, line {line.lineno})"
        ) from error
    if hasattr(result, "tolist"):  # an array or a tensor
        result = result.tolist()
    if not isinstance(result, list | tuple) or len(result) != len(rollouts):
        size = len(result) if isinstance(result, list | tuple) else type(result).__name__
        raise ConfigError(f"reward.functions: {name!r} must return {len(rollouts)} values, got {size}")
    for value in result:
        if value is not None and not (isinstance(value, Real) and math.isfinite(value)):
            raise ConfigError(f"reward.functions: {name!r} must return finite numbers or None, got {value!r}")
    return [None if value is None else float(value) for value in result]


def _columns(rollouts: Sequence[Rollout]) -> dict[str, list[Any]]:
    """All arguments. ``ground_truth``: first reference answer, hidden tests, or None for an unanswerable question."""
    questions = [r.problem.question for r in rollouts]
    return {
        "prompts": [q.statement for q in questions],
        "completions": [r.completion.text for r in rollouts],
        "completion_ids": [list(r.completion.token_ids) for r in rollouts],
        "ground_truth": [r.problem.reference.tests or next(iter(r.problem.reference.answers), None) for r in rollouts],
        "id": [q.id for q in questions],
        "domain": [q.domain for q in questions],
        "dataset": [q.dataset for q in questions],
        "outcome": [r.execution.outcome for r in rollouts],
        "answer": [r.execution.answer for r in rollouts],
        "correct": [r.verdict.correct for r in rollouts],
        "tokens": [r.tokens for r in rollouts],
        "operators": [[c.name for c in r.execution.calls] for r in rollouts],
    }
