"""The terms of the reward, each on its own scale, their table, and the reward: their weighted sum.

    total = 0.65 correctness + 0.15 efficiency + 0.10 simplicity + 0.05 format - 0.05 repetition

less ``repair_cost`` for each repair of the workflow, so that a clean first attempt is always the best.
With these weights the best total is 9.5 and no wrong answer reaches a right one's total; weights that would allow it
are refused. A run without an answer (invalid, raised, over time or budget) gets the worst value of every term, -3.75 in
all. An unscored rollout (unknown verdict, infrastructure fault) gets no total.

A new term is a function of a rollout with an answer and of the ``reward`` section, and a row of ``TERMS``;
``reward.reward_weights`` gives it a weight, whose default belongs in ``config/schema.py``.
"""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from llm_as_judge.answers.code import LONGEST_PARSED, parses
from llm_as_judge.answers.extraction import extract_answer
from llm_as_judge.config.schema import RewardConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.types import Kind, Reward, Rollout

RIGHT, WRONG = 10.0, -5.0
_MOST_CALLS = 8
#: Characters of the longest answer that counts as only the answer.
_LONGEST: Mapping[Kind, int] = {"math": 100, "code": LONGEST_PARSED, "qa": 200}
#: Words; shorter repetitions occur in any class that builds and awaits several operators.
_NGRAM = 6


def correctness(rollout: Rollout, _: RewardConfig) -> float:
    """Return 10 for a right answer, -5 for a wrong one, and in proportion for a score between 0 and 1."""
    return WRONG + (RIGHT - WRONG) * rollout.verdict.worth


def efficiency(rollout: Rollout, config: RewardConfig) -> float:
    """Return 10 for no executor tokens in any attempt, falling linearly to 0 at ``token_budget``. Tokens of a named
    executor are weighed by their price relative to the default's.

    Wall-clock time does not count, because queueing is not the policy's fault.
    """
    return _clipped(10.0 * (1.0 - rollout.weighed_tokens / config.token_budget))


def simplicity(rollout: Rollout, _: RewardConfig) -> float:
    """Return 10 for at most one operator call in all attempts, falling linearly to 0 at ``_MOST_CALLS``."""
    return _clipped(10.0 * (_MOST_CALLS - len(rollout.calls)) / (_MOST_CALLS - 1))


def answer_format(rollout: Rollout, _: RewardConfig) -> float:
    """Return 5 for attempts without lint findings, plus 5 for an answer without other text (``is_clean``)."""
    clean = is_clean(rollout.execution.answer, rollout.problem.question.kind)
    return 5.0 * (not any(run.findings for run in rollout.executions)) + 5.0 * clean


def repetition(rollout: Rollout, _: RewardConfig) -> float:
    """Return 10 times the share of repeated calls, or of repeated n-grams after the thoughts, whichever is larger."""
    calls = [(c.name, c.executor, _frozen(c.arguments)) for c in rollout.execution.calls]
    words = re.findall(r"\w+", rollout.completion.text.rpartition("</think>")[2])
    ngrams = [tuple(words[i : i + _NGRAM]) for i in range(len(words) - _NGRAM + 1)]
    return 10.0 * max(_repeated(calls), _repeated(ngrams))


@dataclass(frozen=True, slots=True)
class Term:
    """``worst`` is the value of an unfinished run; ``sign`` is -1 for a penalty, whose weight is subtracted."""

    worst: float
    measure: Callable[[Rollout, RewardConfig], float]
    sign: float = 1.0


#: By the names in ``reward.reward_weights``; a term without a weight counts nothing.
TERMS: Mapping[str, Term] = {
    "correctness": Term(WRONG, correctness),
    "efficiency": Term(0.0, efficiency),
    "simplicity": Term(0.0, simplicity),
    "format": Term(0.0, answer_format),
    "repetition": Term(10.0, repetition, sign=-1.0),
}


def is_clean(answer: str | None, kind: Kind) -> bool:
    """Tell whether code parses as Python; whether another answer is one short line without other text."""
    if answer is None or not answer.strip() or len(answer.strip()) > _LONGEST[kind]:
        return False
    if kind == "code":
        return parses(answer)
    text = answer.strip()
    return "\n" not in text and extract_answer(text, kind) == text


def _clipped(value: float) -> float:
    return min(10.0, max(0.0, value))


def _frozen(value: object) -> object:
    """Freeze ``value`` in hashable form, without copying its texts, which may be megabytes."""
    if isinstance(value, Mapping):
        return frozenset((key, _frozen(part)) for key, part in value.items())
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return value if isinstance(value, Hashable) else repr(value)


def _repeated(items: Sequence[object]) -> float:
    return 1.0 - len(set(items)) / len(items) if items else 0.0


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
