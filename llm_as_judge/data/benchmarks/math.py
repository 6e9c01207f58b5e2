r"""MATH (Hendrycks et al. 2021): competition problems with LaTeX answers.

Raw fields: ``problem``; ``solution``, whose last ``\boxed{}`` is the answer; ``level``; ``type``, the
subject.
"""

from llm_as_judge.answers.extraction import last_boxed
from llm_as_judge.data.dataset import Dataset, Source, Split, has_fields
from llm_as_judge.data.record import Record, content_id, text_of
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem, Question, Reference

_SUBJECTS = "algebra counting_and_probability geometry intermediate_algebra number_theory prealgebra precalculus"


def parse(record: Record) -> Problem:
    problem, answer = text_of(record, "problem"), last_boxed(text_of(record, "solution"))
    if not answer:
        raise DataError(r"field 'solution' has no \boxed{} answer")
    return Problem(Question(content_id("math", problem), problem, "math", dataset="math"), Reference((answer,)))


DATASET = Dataset(
    domain="math",
    parse=parse,
    golds=lambda record: (text_of(record, "solution"),),
    recognises=has_fields("problem", "solution"),
    metric="math",
    judge_line="Equal means the same mathematical object: a rounded decimal is not the exact value, an open interval "
    "is not a closed one, and every solution must be there.",
    source=Source(
        hub="EleutherAI/hendrycks_math",
        configs=tuple(_SUBJECTS.split()),
        page="https://github.com/hendrycks/math",
        splits={
            "train": Split(hub="train", release=("math/MATH/train/*/*.json",)),
            "test": Split(hub="test", release=("math/MATH/test/*/*.json",)),
        },
    ),
)
