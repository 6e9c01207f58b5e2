"""The project's own format, for mixed files and users' own problems: one flat record per problem.

``problem``; ``answer``: text, number or a list of them, which only ``judge.function`` can do without; ``type``: math,
code or qa; optional ``context``, ``id``, ``dataset``, ``unanswerable``. Code has ``tests`` (text or a list of asserts)
and may have ``entry_point``, ``public_tests`` and ``prelude``. ``SPELLINGS`` has other names that are read; the first
one present is used. If the answer is the letter of an option, the options are shown with the question. Other fields are
ignored.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from llm_as_judge.answers.code import is_name
from llm_as_judge.data.code_tests import check_tests, tested_function
from llm_as_judge.data.record import Record, choice_problem, content_id, short
from llm_as_judge.errors import DataError
from llm_as_judge.types import DOMAINS, Problem, Question, Reference

SPELLINGS: Mapping[str, Sequence[str]] = {
    "problem": ("question",),
    "answer": ("answers", "ground_truth"),
    "type": ("problem_type", "domain"),
    "tests": ("test", "test_list"),
    "dataset": ("source",),
}
NAMES = (
    "problem", "answer", "type", "context", "id", "dataset", "unanswerable", "tests", "entry_point", "public_tests",
    "prelude",
)  # fmt: skip


_READ = {*NAMES, *(other for others in SPELLINGS.values() for other in others)}
_LETTERS = "ABCDEFGHIJ"


def spelt(record: Record) -> dict[str, Any]:
    """The record's values under the project's names, without absent and null ones."""
    named = {}
    for name in NAMES:
        for spelling in (name, *SPELLINGS.get(name, ())):
            if record.get(spelling) is not None:
                named[name] = record[spelling]
                break
    return named


def parse(record: Record) -> Problem:
    """One record. Raises ``DataError`` that names what is missing or contradictory."""
    named = spelt(record)
    text, domain = named.get("problem"), named.get("type")
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"field {_spellings('problem')} must be a non-empty string")
    if domain not in DOMAINS:
        raise DataError(f"field {_spellings('type')} must be one of {', '.join(DOMAINS)}, got {short(domain)}")
    entry_point, public = None, tuple[str, ...]()
    if domain == "code":
        told = {name: record[name] for name in ("tests", *SPELLINGS["tests"]) if record.get(name)}
        if len({tuple(_lines(told, name)) for name in told}) > 1:
            raise DataError(f"fields {' and '.join(told)} hold different tests: keep the one that decides")
        entry_point, public, reference = _code(named)
    else:
        text, reference = _with_options(record, named, text, _answered(named))
    dataset, context, id_ = _text(named, "dataset") or "custom", _text(named, "context"), named.get("id", "")
    if isinstance(id_, bool) or not isinstance(id_, (str, int)):
        raise DataError(f"field 'id' must be text or a number, got {short(id_)}")
    name = content_id(dataset, text, context) if id_ == "" else str(id_)
    question = Question(
        name, text, domain, context=context, entry_point=entry_point, public_tests=public, dataset=dataset
    )
    return Problem(question, reference)


def _code(named: Mapping[str, Any]) -> tuple[str, tuple[str, ...], Reference]:
    """The function's name, the public tests, and the reference with the hidden tests."""
    tests, public, prelude = "\n".join(_lines(named, "tests")), _lines(named, "public_tests"), _text(named, "prelude")
    if not tests and ({"answer", "tests"} & named.keys() or not is_name(_text(named, "entry_point"))):
        raise DataError("a code problem needs 'tests': asserts, or 'def check(candidate)'")
    entry_point = _text(named, "entry_point") or tested_function(tests)
    if tests:
        check_tests(tests, entry_point, prelude, public)
    return entry_point, public, Reference(tests=tests, prelude=prelude)


def _answered(named: Mapping[str, Any]) -> Reference:
    answers, unanswerable = _answers(named.get("answer")), named.get("unanswerable", False)
    if not isinstance(unanswerable, bool):
        raise DataError(f"field 'unanswerable' must be true or false, got {short(unanswerable)}")
    if unanswerable and answers:
        raise DataError(f"give either an {_spellings('answer')} or 'unanswerable': true")
    return Reference(answers, unanswerable=unanswerable)


def _with_options(record: Record, named: Mapping[str, Any], text: str, reference: Reference) -> tuple[str, Reference]:
    """The question with its options, which it needs if the answer is a letter, or an index or an item of ``options``.

    Raises ``DataError`` if the record has several lists that may hold them.
    """
    given, lists = named.get("answer"), _lists(record)
    chosen = [name for name in lists if name.lower().rstrip("s_") in ("option", "choice")]
    if isinstance(given, str) and (label := re.fullmatch(r"\(?([A-J])\)?\.?", given.strip())):
        place = _LETTERS.index(label[1])
        fitting = [name for name, texts in lists.items() if len(texts) > place]
        shown = re.search(rf"(?:^|[\s(]){label[1]}[).:]", f"{_text(named, 'context')}\n{text}", re.MULTILINE)
        if shown or not fitting:
            return text, reference
        chosen = [name for name in chosen if name in fitting] or fitting
        if len(chosen) > 1:
            raise DataError(f"answer {given!r} is a letter, and the options may be in {' or '.join(chosen)}: keep one")
    elif chosen and str(given) in lists[chosen[0]]:
        place = lists[chosen[0]].index(str(given))
    elif chosen and isinstance(given, int) and 0 <= given < len(lists[chosen[0]]):
        place = given
    else:
        return text, reference
    texts = lists[chosen[0]]
    shown_with = choice_problem("", None, text, list(_LETTERS[: len(texts)]), texts, _LETTERS[place])
    return shown_with.question.text, shown_with.reference


def _lists(record: Record) -> dict[str, list[str]]:
    """What may be a question's options: lists of 2 to 10 texts, also written as an object or as lettered columns."""
    found, columns = dict[str, list[str]](), dict[str, list[str]]()
    for name, value in record.items():
        if isinstance(value, dict):
            value = value["text"] if isinstance(value.get("text"), list) else list(value.values())
        if name in _READ:
            continue
        if isinstance(value, list) and 2 <= len(value) <= 10 and all(isinstance(item, str) for item in value):
            found[name] = value
        elif isinstance(value, str) and (column := re.fullmatch(r"(.*?)_?([A-Ja-j]|\d)", name)):
            columns.setdefault(column[1] or "options", []).append(value)
    return {**{name: texts for name, texts in columns.items() if 2 <= len(texts) <= 10}, **found}


def to_record(problem: Problem) -> dict[str, Any]:
    """The flat record that ``parse`` reads back as the same problem."""
    question, reference = problem.question, problem.reference
    record: dict[str, Any] = {
        "id": question.id,
        "dataset": question.dataset,
        "type": question.domain,
        "problem": question.text,
    }
    if question.context:
        record["context"] = question.context
    if question.domain == "code":
        record["entry_point"] = question.entry_point
        record["public_tests"] = list(question.public_tests)
        record |= {"tests": reference.tests} if reference.tests else {}
        record["prelude"] = reference.prelude
    elif reference.unanswerable:
        record["unanswerable"] = True
    elif reference.answers:
        # a list means that each of several answers is right
        record["answer"] = reference.answers[0] if len(reference.answers) == 1 else list(reference.answers)
    return record


def _spellings(name: str) -> str:
    others = ", ".join(repr(spelling) for spelling in SPELLINGS.get(name, ()))
    return f"{name!r} (or {others})" if others else repr(name)


def _answers(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(item, (str, int, float)) and not isinstance(item, bool) for item in values):
        raise DataError(f"field 'answer' must be text, a number or a list of them, got {short(value)}")
    if any(isinstance(item, float) and not math.isfinite(item) for item in values):
        raise DataError(f"field 'answer' must be a finite number, got {short(value)}")
    # other mixtures keep GSM8K's raw answers, which end in "#### N"
    answers = tuple(dict.fromkeys(str(item).rpartition("\n#### ")[2].strip() for item in values))
    if "" in answers:
        raise DataError("field 'answer' is empty; for a question without an answer write \"unanswerable\": true")
    return answers


def _text(named: Mapping[str, Any], name: str) -> str:
    value = named.get(name, "")
    if not isinstance(value, str):
        raise DataError(f"field {name!r} must be text, got {short(value)}")
    return value


def _lines(named: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = named.get(name)
    lines = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(line, str) for line in lines):
        raise DataError(f"field {name!r} must be text or a list of text, got {short(value)}")
    return tuple(line for line in lines if line.strip())
