r"""GSM8K (Cobbe et al. 2021), word problems with one number as the answer; MATH (Hendrycks et al. 2021), MATH-500 and
AIME, competition problems with LaTeX answers.

Raw fields of GSM8K: ``question``; ``answer``, a solution whose last line is ``#### N`` (N may have thousands
separators). Of MATH: ``problem``; ``solution``, whose last ``\boxed{}`` is the answer; ``level``; ``type``, the
subject. Later sets of this form (MATH-500, AIME, NuminaMath) have the answer in a field ``answer``.
"""

from functools import partial

from llm_as_judge.answers.extraction import last_boxed
from llm_as_judge.data.dataset import OTHER, SOURCES, Dataset, derived, has_fields
from llm_as_judge.data.record import Record, content_id, optional_text, text_field
from llm_as_judge.errors import DataError, Untested
from llm_as_judge.types import Problem, Question, Reference


def parse_gsm8k(record: Record) -> Problem:
    question, solution = text_field(record, "question"), text_field(record, "answer")
    _, mark, answer = solution.rpartition("####")
    answer = answer.strip().replace(",", "").lstrip("$")
    if not mark or not answer:
        raise DataError("field 'answer' has no '#### N' line")
    return Problem(Question(content_id("gsm8k", question), question, "math", dataset="gsm8k"), Reference((answer,)))


def parse(record: Record) -> Problem:
    """Parse one record; its ``answer``, if it has one, is right, whatever the solution's box says."""
    problem, given = text_field(record, "problem"), record.get("answer")
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        given = str(given)
    answer = optional_text({"answer": given}, "answer").strip() or last_boxed(text_field(record, "solution"))
    if not answer:
        raise Untested(r"there is no field 'answer', and field 'solution' has no \boxed{} answer")
    return Problem(Question(content_id("math", problem), problem, "math", dataset="math"), Reference((answer,)))


def _golds(record: Record) -> tuple[str, ...]:
    """Return the solution, or the answer if the solution has no box."""
    solution = optional_text(record, "solution")
    return (solution,) if last_boxed(solution) else parse(record).reference.answers


def _of_year(year: str, record: Record) -> bool:
    named, known = record.get("dataset") == f"aime{year[2:]}", {"problem", "url"} <= record.keys()
    return named or (known and str(record.get("year")) == year)


GSM8K = Dataset(
    domain="math",
    parse=parse_gsm8k,
    golds=lambda record: (text_field(record, "answer"),),
    recognises=lambda record: "question" in record and "#### " in str(record.get("answer", "")),
    metric="gsm8k",
    judge_line="The answer is one number: it must be exactly equal; a missing or extra unit does not matter.",
    variant=lambda record: "" if "<<" in str(record["answer"]) else OTHER,
    source=SOURCES["gsm8k"],
)
DATASET = Dataset(
    domain="math",
    parse=parse,
    golds=_golds,
    recognises=has_fields("problem", "solution"),
    metric="math",
    judge_line="Equal means the same mathematical object: a rounded decimal is not the exact value, an open interval "
    "is not a closed one, and every solution must be there.",
    variant=lambda record: "" if {"level", "type"} <= record.keys() else OTHER,
    source=SOURCES["math"],
)
MATH500 = derived(DATASET, "math500", has_fields("problem", "answer", "subject", "unique_id"))
AIME24, AIME25 = (
    derived(DATASET, f"aime{year[2:]}", partial(_of_year, year), golds=lambda record: (str(record["answer"]),))
    for year in ("2024", "2025")
)
