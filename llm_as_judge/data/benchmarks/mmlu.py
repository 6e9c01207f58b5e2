"""MMLU (Hendrycks et al. 2021): four-way multiple choice over 57 subjects.

Raw rows of the headerless CSV: question, four choices, the right letter. On the hub: ``question``,
``choices`` (a list) and ``answer`` (an index or a letter).
"""

from collections.abc import Sequence

from llm_as_judge.data.dataset import OTHER, Dataset, has_fields, source_of
from llm_as_judge.data.record import CHOICE_LINE, Record, choice_golds, choice_problem, list_of, text_of
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem

_LETTERS = "ABCD"


def is_row(row: Sequence[str]) -> bool:
    return len(row) == 6 and row[5].strip() in (*_LETTERS,)


def from_row(row: Sequence[str]) -> Record:
    """A CSV row in the hub's shape."""
    if len(row) != 6:
        raise DataError(f"an MMLU row has 6 columns (question, 4 choices, letter), got {len(row)}")
    return {"question": row[0], "choices": list(row[1:5]), "answer": row[5].strip(), "subject": ""}


def parse(record: Record) -> Problem:
    stem, choices, answer = text_of(record, "question"), list_of(record, "choices"), record.get("answer")
    if len(choices) != len(_LETTERS):
        raise DataError(f"field 'choices' must hold 4 choices, got {len(choices)}")
    letter = _LETTERS[answer] if isinstance(answer, int) and 0 <= answer < 4 else answer
    if not isinstance(letter, str) or len(letter) != 1 or letter not in _LETTERS:
        raise DataError(f"field 'answer' must be 0 to 3 or A to D, got {answer!r}")
    return choice_problem("mmlu", None, stem, list(_LETTERS), choices, letter)


DATASET = Dataset(
    domain="qa",
    parse=parse,
    golds=choice_golds(parse),
    recognises=has_fields("question", "choices", "answer"),
    metric="choice",
    judge_line=CHOICE_LINE,
    variant=lambda record: "" if "subject" in record else OTHER,
    source=source_of("mmlu"),
)
