"""The project's own format, for mixed files and users' own problems: one flat record per problem.

``problem``; ``answer``: text, number or a list of them; ``type``: math, code or qa; optional ``context``, ``id``,
``dataset``, ``unanswerable``. Code has ``tests``: source or a list of asserts, and may have ``entry_point``,
``public_tests`` and ``prelude``. ``SPELLINGS`` has other names that are read; the first one present is used. Other
fields are ignored.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from llm_as_judge.data.code_tests import check_tests, tested_function
from llm_as_judge.data.record import Record, content_id, short
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
        entry_point, public, reference = _code(named)
    else:
        reference = _answered(named)
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
    if not tests:
        raise DataError("a code problem needs 'tests': asserts, or 'def check(candidate)'")
    entry_point = _text(named, "entry_point") or tested_function(tests)
    check_tests(tests, entry_point, prelude, public)
    return entry_point, public, Reference(tests=tests, prelude=prelude)


def _answered(named: Mapping[str, Any]) -> Reference:
    answers, unanswerable = _answers(named.get("answer")), named.get("unanswerable", False)
    if not isinstance(unanswerable, bool):
        raise DataError(f"field 'unanswerable' must be true or false, got {short(unanswerable)}")
    if unanswerable == bool(answers):
        raise DataError(f"give either an {_spellings('answer')} or 'unanswerable': true")
    return Reference(answers, unanswerable=unanswerable)


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
        record["tests"] = reference.tests
        record["prelude"] = reference.prelude
    elif reference.unanswerable:
        record["unanswerable"] = True
    else:
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
