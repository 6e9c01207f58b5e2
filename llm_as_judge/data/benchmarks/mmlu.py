"""MMLU (Hendrycks et al. 2021), MMLU-Pro (Wang et al. 2024) and GPQA (Rein et al. 2023): multiple choice.

Raw rows of MMLU's headerless CSV: question, four choices, the right letter. On the hub: ``question``, ``choices`` (a
list) and ``answer`` (an index or a letter). MMLU-Pro: ``question``, ``options`` (up to ten, some only ``N/A``),
``answer`` (a letter) and ``answer_index``. GPQA: ``Question``, ``Correct Answer``, ``Incorrect Answer 1`` to ``3``; a
hash decides the order in which they are shown.
"""

from collections.abc import Sequence

from llm_as_judge.data.dataset import OTHER, choice_dataset, has_fields
from llm_as_judge.data.record import Record, choice_problem, content_id, list_of, text_of
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


def _parse_pro(record: Record) -> Problem:
    stem, options, place = text_of(record, "question"), list_of(record, "options"), record.get("answer_index")
    letter = record.get("answer")
    if type(place) is not int or not 0 <= place < len(options) <= 10 or letter != "ABCDEFGHIJ"[place]:
        raise DataError(f"'answer' and 'answer_index' must name one of {len(options)} options: {letter!r}, {place!r}")
    kept = [i for i, option in enumerate(options) if option.strip() != "N/A" or i == place]
    labels, right = list("ABCDEFGHIJ"[: len(kept)]), kept.index(place)
    given = record.get("question_id")
    return choice_problem("mmlu_pro", given, stem, labels, [options[i] for i in kept], labels[right])


def _parse_gpqa(record: Record) -> Problem:
    stem = text_of(record, "Question")
    right, *wrong = (text_of(record, name) for name in _GPQA)
    shown = sorted([right, *wrong], key=lambda text: content_id("", stem, text))
    given, letter = record.get("Record ID"), _LETTERS[shown.index(right)]
    return choice_problem("gpqa_diamond", given, stem, list(_LETTERS), shown, letter)


_GPQA = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
DATASET = choice_dataset(
    "mmlu", parse, has_fields("question", "choices", "answer"), lambda record: "" if "subject" in record else OTHER
)
PRO = choice_dataset("mmlu_pro", _parse_pro, has_fields("question", "options", "answer_index"))
#: The larger sets of GPQA have the same form, so that a file of another name is another row in results.
GPQA = choice_dataset("gpqa_diamond", _parse_gpqa, has_fields("Question", *_GPQA), lambda record: OTHER)
