r"""MATH (Hendrycks et al. 2021): competition problems with LaTeX answers.

Raw fields: ``problem``; ``solution``, whose last ``\boxed{}`` is the answer; ``level``; ``type``, the
subject. Later sets of this form (MATH-500, AIME, NuminaMath) have the answer in a field ``answer``.
"""

from llm_as_judge.answers.extraction import last_boxed
from llm_as_judge.data.dataset import OTHER, Dataset, has_fields, source_of
from llm_as_judge.data.record import Record, content_id, optional_text, text_of
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem, Question, Reference

_SUBJECTS = "algebra counting_and_probability geometry intermediate_algebra number_theory prealgebra precalculus"


def parse(record: Record) -> Problem:
    """One record; its ``answer``, if it has one, is right, whatever the solution's box says."""
    problem, given = text_of(record, "problem"), record.get("answer")
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        given = str(given)
    answer = optional_text({"answer": given}, "answer").strip() or last_boxed(text_of(record, "solution"))
    if not answer:
        raise DataError(r"there is no field 'answer', and field 'solution' has no \boxed{} answer")
    return Problem(Question(content_id("math", problem), problem, "math", dataset="math"), Reference((answer,)))


def _golds(record: Record) -> tuple[str, ...]:
    """The solution, or the answer if the solution has no box."""
    solution = text_of(record, "solution")
    return (solution,) if last_boxed(solution) else parse(record).reference.answers


def _variant(record: Record) -> str:
    if {"unique_id", "subject"} <= record.keys():
        return "math500"
    return "" if {"level", "type"} <= record.keys() else OTHER


DATASET = Dataset(
    domain="math",
    parse=parse,
    golds=_golds,
    recognises=has_fields("problem", "solution"),
    metric="math",
    judge_line="Equal means the same mathematical object: a rounded decimal is not the exact value, an open interval "
    "is not a closed one, and every solution must be there.",
    variant=_variant,
    source=source_of("math"),
)
