"""The terms of the reward, each on its own scale, and their table.

A new term is a function of a rollout with an answer and of the ``reward`` section, and a row of ``TERMS``;
``reward.reward_weights`` gives it a weight, whose default belongs in ``config/schema.py``.
"""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from llm_as_judge.answers.code import LONGEST_PARSED, parses
from llm_as_judge.answers.extraction import extract_answer
from llm_as_judge.config.schema import RewardConfig
from llm_as_judge.types import Kind, Rollout

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
    """Return 10 times the share of repeated operator calls or of repeated n-grams in the text, whichever is larger."""
    calls = [(c.name, c.executor, _frozen(c.arguments)) for c in rollout.execution.calls]
    words = re.findall(r"\w+", rollout.completion.text)
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
