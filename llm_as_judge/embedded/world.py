"""Detects questions outside the generated world that the nano models were trained on."""

import re
from functools import lru_cache

from llm_as_judge.embedded.tasks.generate import problems
from llm_as_judge.types import Domain, Question

CAVEAT = (
    "caveat: the nano models know only their own generated problems, and this is not one of them; their answers to "
    "others are worthless. Use a real model: --config config/training.yaml"
)
_KNOWN = 0.75  # share of known words; generated problems lie above it


def outside(question: Question) -> bool:
    """True if too few of the question's words occur in generated problems of its domain."""
    words = _words(question.text)
    known = _vocabulary(question.domain)
    return sum(word in known or word.isdigit() for word in words) < _KNOWN * max(len(words), 1)


@lru_cache
def _vocabulary(domain: Domain) -> frozenset[str]:
    return frozenset(word for problem in problems(domain, "train", 300) for word in _words(problem.question.text))


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())
