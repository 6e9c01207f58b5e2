"""A user's own problems: one flat record each, in the project's JSONL format.

Fields (aliases): ``problem`` (question); ``answer`` (ground_truth, answers): text, number or a list of them;
``type`` (problem_type, domain): math, code or qa; optional ``context``, ``id``, ``dataset`` (source),
``unanswerable``. Code has ``tests`` (test, test_list): source or a list of asserts, and may have
``entry_point``, ``public_tests`` and ``prelude``.
"""

from __future__ import annotations

from typing import Any

from llm_as_judge.datasets.mbpp import called_function
from llm_as_judge.datasets.record import Record, content_id
from llm_as_judge.errors import DataError
from llm_as_judge.types import DOMAINS, Problem, Question, Reference


def parse(record: Record) -> Problem:
    """One record; what is missing or contradictory is named."""
    text = _first(record, "problem", "question")
    if not isinstance(text, str) or not text.strip():
        raise DataError("field 'problem' (or 'question') must be a non-empty string")
    domain = _first(record, "type", "problem_type", "domain")
    if domain not in DOMAINS:
        raise DataError(f"field 'type' (or 'problem_type') must be one of {', '.join(DOMAINS)}, got {domain!r}")
    tests, public = _lines(record, "tests", "test", "test_list"), _lines(record, "public_tests")
    answers = _answers(_first(record, "answers", "answer", "ground_truth"))
    unanswerable = bool(record.get("unanswerable", False))
    if domain == "code" and not tests:
        raise DataError("a code problem needs 'tests': asserts, or 'def check(candidate)'")
    if domain != "code" and unanswerable == bool(answers):
        raise DataError("give either an 'answer' (or 'ground_truth') or 'unanswerable': true")
    entry_point = record.get("entry_point")
    if domain == "code" and not entry_point:
        if "def check(" in tests[0]:
            raise DataError("tests that define check(candidate) need 'entry_point', the function's name")
        entry_point = called_function((public or tests)[0])
    dataset = str(_first(record, "dataset", "source") or "custom")
    context = str(record.get("context") or "")
    return Problem(
        Question(
            str(record.get("id") or content_id(dataset, text, context)),
            text,
            domain,
            context=context,
            entry_point=entry_point,
            public_tests=tuple(public),
            dataset=dataset,
        ),
        Reference(
            () if domain == "code" else answers,
            tests="\n".join(tests),
            prelude=str(record.get("prelude") or ""),
            unanswerable=unanswerable,
        ),
    )


def _first(record: Record, *keys: str) -> Any:
    return next((record[key] for key in keys if record.get(key) is not None), None)


def _answers(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(item, (str, int, float)) and not isinstance(item, bool) for item in values):
        raise DataError(f"field 'answer' must be text, a number or a list of them, got {value!r}")
    # GSM8K's own answers, kept raw by many a mixture, end in "#### N"
    answers = tuple(dict.fromkeys(str(item).rpartition("#### ")[2].strip() for item in values))
    if "" in answers:
        raise DataError("field 'answer' is empty; for a question without an answer write \"unanswerable\": true")
    return answers


def _lines(record: Record, *keys: str) -> list[str]:
    value = _first(record, *keys)
    lines = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(line, str) for line in lines):
        raise DataError(f"field {keys[0]!r} must be text or a list of text, got {value!r}")
    return [line for line in lines if line.strip()]
