"""CommonsenseQA (Talmor et al. 2019): five-way multiple choice.

Raw fields: ``id``; ``answerKey``; ``question``, an object with ``stem`` and ``choices[].{label, text}``. On
the hub ``question`` is the stem and ``choices = {"label": [...], "text": [...]}`` a second field.
"""

from llm_as_judge.data.dataset import OTHER, choice_dataset, has_fields
from llm_as_judge.data.record import Record, choice_problem, list_of, mapping_of, text_of
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem


def parse(record: Record) -> Problem:
    key = text_of(record, "answerKey")
    if isinstance(record.get("question"), dict):
        question = mapping_of(record, "question")
        stem, choices = text_of(question, "stem"), list_of(question, "choices", dict)
        labels, texts = ([text_of(choice, field) for choice in choices] for field in ("label", "text"))
    else:
        stem, columns = text_of(record, "question"), mapping_of(record, "choices")
        labels, texts = list_of(columns, "label"), list_of(columns, "text")
    if key not in labels or len(labels) != len(texts):
        raise DataError(f"answerKey {key!r} is none of the labels {labels}")
    if all(map(str.isdigit, labels)):  # some of ARC's
        letters = "ABCDEFGHIJ"[: len(labels)]
        key, labels = letters[labels.index(key)], list(letters)
    return choice_problem("commonsenseqa", record.get("id"), stem, labels, texts, key)


def _nested(record: Record) -> Record:
    question = record.get("question")
    return question if isinstance(question, dict) else {}


DATASET = choice_dataset(
    "commonsenseqa",
    parse,
    has_fields("question", "answerKey"),
    lambda record: "" if "question_concept" in {**record, **_nested(record)} else OTHER,
)
