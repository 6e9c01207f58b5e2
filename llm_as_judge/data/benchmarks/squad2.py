"""SQuAD 2.0 (Rajpurkar et al. 2018): questions about a paragraph, some of them unanswerable.

Raw fields of the official nested file: ``data[].paragraphs[].{context, qas[].{id, question, is_impossible,
answers[].text}}``; ``flatten`` turns it into one record per question with its ``context``. The hub's flat
form, ``answers = {"text": [...]}``, is read too. Without ``is_impossible``, a question without answers is unanswerable.
"""

from collections.abc import Iterator

from llm_as_judge.data.dataset import OTHER, SOURCES, Dataset, has_fields
from llm_as_judge.data.record import Record, given_id, list_of, short, text_field
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem, Question, Reference


def flatten(article: Record) -> Iterator[Record]:
    """Yield questions of one nested article, each with its paragraph's ``context``."""
    for paragraph in list_of(article, "paragraphs", dict):
        for question in list_of(paragraph, "qas", dict):
            yield {**question, "context": text_field(paragraph, "context")}


def parse(record: Record) -> Problem:
    """Parse one flat question. Every annotator's answer is a reference."""
    text, context = text_field(record, "question"), text_field(record, "context")
    answers = dict.fromkeys(_annotated(record))
    unanswerable = record.get("is_impossible", not answers)
    if not isinstance(unanswerable, bool):
        raise DataError(f"field 'is_impossible' must be true or false, got {short(unanswerable)}")
    if unanswerable == bool(answers):
        raise DataError(f"is_impossible is {unanswerable} with {len(answers)} answers")
    id_ = given_id("squad2", record.get("id"), text, context)
    question = Question(id_, text.strip(), "qa", context=context, dataset="squad2")
    return Problem(question, Reference(tuple(answers), unanswerable=unanswerable))


def _annotated(record: Record) -> list[str]:
    """Collect the answers of all annotators. ``plausible_answers`` are wrong answers and are not read."""
    raw = record.get("answers")
    texts = raw.get("text") if isinstance(raw, dict) else raw
    if not isinstance(texts, list):
        raise DataError("field 'answers' must be a list, or an object with a list 'text'")
    return [text_field(answer if isinstance(answer, dict) else {"text": answer}, "text").strip() for answer in texts]


DATASET = Dataset(
    domain="qa",
    parse=parse,
    golds=lambda record: tuple(_annotated(record)) or ("unanswerable",),
    recognises=has_fields("question", "context", "answers"),
    metric="squad2",
    judge_line="The same span with more or fewer words around it is the same answer; a longer answer that adds another "
    "fact is not. Where the reference says unanswerable, only a candidate that says so is True.",
    variant=lambda record: "" if "is_impossible" in record or not _annotated(record) else OTHER,
    source=SOURCES["squad2"],
)
