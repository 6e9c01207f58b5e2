"""SQuAD 2.0 (Rajpurkar et al. 2018): questions on a paragraph, a part of them without an answer.

Raw fields of the official nested file: ``data[].paragraphs[].{context, qas[].{id, question, is_impossible,
answers[].text}}``; ``flatten`` turns it into one record a question with ``context``. The flat form of the
Hugging Face hub, ``answers = {"text": [...]}``, is read as well. Without ``is_impossible``, no answers mean
unanswerable.
"""

from __future__ import annotations

from collections.abc import Iterator

from llm_as_judge.data.record import Record, content_id, list_of, short, text_of
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem, Question, Reference


def flatten(document: Record) -> Iterator[Record]:
    """Questions of the nested official document, each with its paragraph's ``context``."""
    for article in list_of(document, "data", dict):
        for paragraph in list_of(article, "paragraphs", dict):
            for question in list_of(paragraph, "qas", dict):
                yield {**question, "context": text_of(paragraph, "context")}


def parse(record: Record) -> Problem:
    """One flat question; every annotator's answer is a reference."""
    text, context = text_of(record, "question"), text_of(record, "context")
    answers = dict.fromkeys(_annotated(record))
    unanswerable = record.get("is_impossible", not answers)
    if not isinstance(unanswerable, bool):
        raise DataError(f"field 'is_impossible' must be true or false, got {short(unanswerable)}")
    if unanswerable == bool(answers):
        raise DataError(f"is_impossible is {unanswerable} with {len(answers)} answers")
    given = record.get("id")
    return Problem(
        Question(
            f"squad2/{given}" if given else content_id("squad2", text, context),
            text.strip(),
            "qa",
            context=context,
            dataset="squad2",
        ),
        Reference(tuple(answers), unanswerable=unanswerable),
    )


def golds(record: Record) -> tuple[str, ...]:
    """Every annotator's answer, or that there is none."""
    return tuple(_annotated(record)) or ("unanswerable",)


def _annotated(record: Record) -> list[str]:
    """Answers of all annotators; those of ``plausible_answers``, which are wrong, are left alone."""
    raw = record.get("answers")
    texts = raw.get("text") if isinstance(raw, dict) else raw
    if not isinstance(texts, list):
        raise DataError("field 'answers' must be a list, or an object with a list 'text'")
    return [text_of(answer if isinstance(answer, dict) else {"text": answer}, "text").strip() for answer in texts]
