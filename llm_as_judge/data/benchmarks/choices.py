"""Multiple choice: MMLU (Hendrycks et al. 2021), MMLU-Pro (Wang et al. 2024), GPQA (Rein et al. 2023), CommonsenseQA
(Talmor et al. 2019).

Raw rows of MMLU's headerless CSV: question, four choices, the right letter. On the hub: ``question``, ``choices`` (a
list), ``answer`` (an index or a letter). MMLU-Pro: ``question``, ``options`` (up to ten, some only ``N/A``), ``answer``
(a letter), ``answer_index``. GPQA: ``Question``, ``Correct Answer``, ``Incorrect Answer 1`` to ``3``, in the order of
a hash. CommonsenseQA: ``id``; ``answerKey``; ``question``, an object with ``stem`` and ``choices[].{label, text}``,
on the hub the stem, with a second field ``choices = {"label": [...], "text": [...]}``.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llm_as_judge.data.dataset import OTHER, SOURCES, Dataset, has_fields
from llm_as_judge.data.record import Record, choice_problem, content_id, json_of, list_of, text_field
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem

_LETTERS, _ALL = "ABCD", "ABCDEFGHIJ"
_GPQA = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def is_row(row: Sequence[str]) -> bool:
    return len(row) == 6 and row[5].strip() in (*_LETTERS,)


def from_row(row: Sequence[str]) -> Record | DataError:
    """Turn a CSV row into the hub's shape, or say why there is none."""
    if len(row) != 6:
        return DataError(f"an MMLU row has 6 columns (question, 4 choices, letter), got {len(row)}")
    return {"question": row[0], "choices": list(row[1:5]), "answer": row[5].strip(), "subject": ""}


def parse(record: Record) -> Problem:
    stem, choices, answer = text_field(record, "question"), list_of(record, "choices"), record.get("answer")
    if len(choices) != len(_LETTERS):
        raise DataError(f"field 'choices' must hold 4 choices, got {len(choices)}")
    letter = _LETTERS[answer] if isinstance(answer, int) and 0 <= answer < 4 else answer
    if not isinstance(letter, str) or len(letter) != 1 or letter not in _LETTERS:
        raise DataError(f"field 'answer' must be 0 to 3 or A to D, got {answer!r}")
    return choice_problem("mmlu", None, stem, list(_LETTERS), choices, letter)


def _parse_pro(record: Record) -> Problem:
    stem, options, place = text_field(record, "question"), list_of(record, "options"), record.get("answer_index")
    letter = record.get("answer")
    if type(place) is not int or not 0 <= place < len(options) <= 10 or letter != _ALL[place]:
        raise DataError(
            f"'answer' and 'answer_index' must name one of {len(options)} options, at most 10: {letter!r}, {place!r}"
        )
    kept = [i for i, option in enumerate(options) if option.strip() != "N/A" or i == place]
    labels, right = list(_ALL[: len(kept)]), kept.index(place)
    given = record.get("question_id")
    return choice_problem("mmlu_pro", given, stem, labels, [options[i] for i in kept], labels[right])


def _parse_gpqa(record: Record) -> Problem:
    stem = text_field(record, "Question")
    right, *wrong = (text_field(record, name) for name in _GPQA)
    shown = sorted([right, *wrong], key=lambda text: content_id("", stem, text))
    given, letter = record.get("Record ID"), _LETTERS[shown.index(right)]
    return choice_problem("gpqa_diamond", given, stem, list(_LETTERS), shown, letter)


def _parse_commonsenseqa(record: Record) -> Problem:
    key = text_field(record, "answerKey")
    if isinstance(record.get("question"), dict):
        question = json_of(record, "question", dict)
        stem, choices = text_field(question, "stem"), list_of(question, "choices", dict)
        labels, texts = ([text_field(choice, field) for choice in choices] for field in ("label", "text"))
    else:
        stem, columns = text_field(record, "question"), json_of(record, "choices", dict)
        labels, texts = list_of(columns, "label"), list_of(columns, "text")
    if key not in labels or len(labels) != len(texts):
        raise DataError(f"answerKey {key!r} is none of the labels {labels}")
    if all(map(str.isdigit, labels)):  # some of ARC's
        letters = _ALL[: len(labels)]
        key, labels = letters[labels.index(key)], list(letters)
    return choice_problem("commonsenseqa", record.get("id"), stem, labels, texts, key)


def _concept(record: Record) -> str:
    """Return the concept that CommonsenseQA's own records are about."""
    question = record.get("question")
    return "" if "question_concept" in (question if isinstance(question, dict) else record) else OTHER


def _entry(name: str, parse: Callable[[Record], Problem], recognises: Callable[[Record], bool], **more: Any) -> Dataset:
    def golds(record: Record) -> tuple[str, ...]:
        letter = parse(record).reference.answers[0]
        return (letter, f"({letter})", f"The answer is {letter}.")  # the last as a chat model writes it

    return Dataset(
        domain="qa", parse=parse, golds=golds, recognises=recognises, metric="choice", source=SOURCES[name],
        judge_line="The letter or the text of the option is the answer; where the two disagree it is False.", **more,
    )  # fmt: skip


DATASET = _entry(
    "mmlu",
    parse,
    has_fields("question", "choices", "answer"),
    variant=lambda record: "" if "subject" in record else OTHER,
)
PRO = _entry("mmlu_pro", _parse_pro, has_fields("question", "options", "answer_index"))
#: The larger sets of GPQA have the same form, so that a file of another name is another row in results.
GPQA = _entry("gpqa_diamond", _parse_gpqa, has_fields("Question", *_GPQA), variant=lambda record: OTHER)
COMMONSENSEQA = _entry("commonsenseqa", _parse_commonsenseqa, has_fields("question", "answerKey"), variant=_concept)
