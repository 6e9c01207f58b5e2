r"""MATH (Hendrycks et al. 2021), MATH-500 and AIME: competition problems with LaTeX answers.

Raw fields: ``problem``; ``solution``, whose last ``\boxed{}`` is the answer; ``level``; ``type``, the
subject. Later sets of this form (MATH-500, AIME, NuminaMath) have the answer in a field ``answer``, AIME's being a
whole number up to 999 (``033``).
"""

from dataclasses import replace
from functools import partial

from llm_as_judge.answers.extraction import last_boxed
from llm_as_judge.data.dataset import OTHER, Dataset, has_fields, source_of
from llm_as_judge.data.record import Record, content_id, optional_text, text_of
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem, Question, Reference

_SUBJECTS = "algebra counting_and_probability geometry intermediate_algebra number_theory prealgebra precalculus"


def parse(record: Record, dataset: str = "math") -> Problem:
    """One record; its ``answer``, if it has one, is right, whatever the solution's box says."""
    problem, given = text_of(record, "problem"), record.get("answer")
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        given = str(given)
    answer = optional_text({"answer": given}, "answer").strip() or last_boxed(text_of(record, "solution"))
    if not answer:
        raise DataError(r"there is no field 'answer', and field 'solution' has no \boxed{} answer")
    return Problem(Question(content_id(dataset, problem), problem, "math", dataset=dataset), Reference((answer,)))


def _golds(record: Record) -> tuple[str, ...]:
    """The solution, or the answer if the solution has no box."""
    solution = optional_text(record, "solution")
    return (solution,) if last_boxed(solution) else parse(record).reference.answers


def _aime(record: Record, dataset: str) -> Problem:
    problem = parse(record, dataset)
    (answer,) = problem.reference.answers
    if not (answer.isdecimal() and int(answer) <= 999):
        raise DataError(f"field 'answer' of AIME must be a whole number from 0 to 999, got {answer!r}")
    return replace(problem, reference=Reference((str(int(answer)),)))


DATASET = Dataset(
    domain="math",
    parse=parse,
    golds=_golds,
    recognises=has_fields("problem", "solution"),
    metric="math",
    judge_line="Equal means the same mathematical object: a rounded decimal is not the exact value, an open interval "
    "is not a closed one, and every solution must be there.",
    variant=lambda record: "" if {"level", "type"} <= record.keys() else OTHER,
    source=source_of("math"),
)
MATH500 = replace(
    DATASET,
    parse=partial(parse, dataset="math500"),
    recognises=has_fields("problem", "answer", "subject", "unique_id"),
    variant=lambda record: "",
    source=source_of("math500"),
)


def _aime_of(year: int) -> Dataset:
    return replace(
        MATH500,
        parse=partial(_aime, dataset=f"aime{year - 2000}"),
        golds=lambda record: (str(record["answer"]),),
        recognises=lambda record: {"problem", "url"} <= record.keys() and str(record.get("year")) == str(year),
        judge_line="The answer is one whole number: it must be exactly equal.",
        source=source_of(f"aime{year - 2000}"),
    )


AIME24, AIME25 = map(_aime_of, (2024, 2025))
