"""Helpers that read fields of a raw record, shared by the benchmark files.

A field that is missing or of the wrong type raises ``DataError`` with the reason; the reader adds file and line.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem, Question, Reference

Record = Mapping[str, Any]


def text_field(record: Record, key: str) -> str:
    """Return the non-empty string under ``key``, with line ends as LF (MBPP has CRLF and CR CR LF)."""
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"field {key!r} must be a non-empty string, got {short(value)}")
    return plain_lines(value)


def optional_text(record: Record, key: str) -> str:
    """Return the string under ``key``, with line ends as LF; empty if absent or null."""
    return text_field(record, key) if record.get(key) not in (None, "") else ""


def list_of(record: Record, key: str, kind: type = str) -> list[Any]:
    """Return the list under ``key``, whose items must be of type ``kind``."""
    value = record.get(key)
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise DataError(f"field {key!r} must be a list of {kind.__name__}, got {short(value)}")
    return value


def json_of(record: Record, key: str, kind: type = object) -> Any:
    """Return the value of type ``kind`` under ``key``, which may be JSON in a text."""
    value = record.get(key)
    with suppress(ValueError, RecursionError):
        value = json.loads(value) if isinstance(value, str) else value
        if isinstance(value, kind):
            return value
    raise DataError(f"field {key!r} must be JSON of a {kind.__name__}, got {short(value)}")


def content_id(dataset: str, *parts: str) -> str:
    """Derive an id from the content, for benchmarks without ids: equal problems have equal ids."""
    return f"{dataset}/{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"


def given_id(dataset: str, given: object, *parts: str) -> str:
    """Return the benchmark's own id, or the ``content_id`` of ``parts`` where it gives none."""
    return content_id(dataset, *parts) if given in (None, "") else f"{dataset}/{given}"


def plain_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def choice_problem(dataset: str, given: object, stem: str, labels: list[str], texts: list[str], right: str) -> Problem:
    """Make a multiple-choice question: the letter, the text or both are right.

    The text alone is accepted only if no other choice has the same text.
    """
    choices = [text.strip() for text in texts]
    shown = "\n".join([stem.strip(), *(f"{label}. {text}" for label, text in zip(labels, choices, strict=True))])
    text = choices[labels.index(right)]
    answers = [right, f"{right}. {text}"] if text else [right]
    if text and choices.count(text) == 1:
        answers.append(text)
    return Problem(Question(given_id(dataset, given, shown), shown, "qa", dataset=dataset), Reference(tuple(answers)))


def short(value: object) -> str:
    """Write ``repr`` in at most 80 characters, for messages."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
