r"""MATH (Hendrycks et al. 2021): competition problems with LaTeX answers.

Raw fields: ``problem``; ``solution``, whose last ``\boxed{}`` is the answer; ``level``; ``type``, the
subject.
"""

from __future__ import annotations

from llm_as_judge.answers.extraction import last_boxed
from llm_as_judge.data.record import Record, content_id, text_of
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem, Question, Reference


def parse(record: Record) -> Problem:
    """One MATH problem."""
    problem, answer = text_of(record, "problem"), last_boxed(text_of(record, "solution"))
    if not answer:
        raise DataError(r"field 'solution' has no \boxed{} answer")
    return Problem(Question(content_id("math", problem), problem, "math", dataset="math"), Reference((answer,)))


def golds(record: Record) -> tuple[str, ...]:
    """The boxed answer of the published solution, as a reply would give it."""
    return (rf"\boxed{{{last_boxed(text_of(record, 'solution'))}}}",)
