"""Helpers that read fields of a raw record, shared by the benchmark files.

A field that is missing or of the wrong type raises ``DataError`` with the reason; the reader adds file and line.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem, Question, Reference

Record = Mapping[str, Any]

#: Line for the LLM judge on multiple-choice datasets.
CHOICE_LINE = "The letter or the text of the option is the answer; where the two disagree it is False."


def text_of(record: Record, key: str) -> str:
    """The non-empty string under ``key``, with line ends as LF (MBPP has CRLF and CR CR LF)."""
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"field {key!r} must be a non-empty string, got {short(value)}")
    return plain_lines(value)


def optional_text(record: Record, key: str) -> str:
    """The string under ``key``, with line ends as LF; empty if absent or null."""
    return text_of(record, key) if record.get(key) not in (None, "") else ""


def list_of(record: Record, key: str, kind: type = str) -> list[Any]:
    """The list under ``key``, whose items must be of type ``kind``."""
    value = record.get(key)
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise DataError(f"field {key!r} must be a list of {kind.__name__}, got {short(value)}")
    return value


def mapping_of(record: Record, key: str) -> Record:
    value = record.get(key)
    if not isinstance(value, dict):
        raise DataError(f"field {key!r} must be an object, got {short(value)}")
    return value


def content_id(dataset: str, *parts: str) -> str:
    """An id derived from the content, for benchmarks without ids: equal problems have equal ids."""
    return f"{dataset}/{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"


def given_id(dataset: str, given: object, *parts: str) -> str:
    """The benchmark's own id, or the ``content_id`` of ``parts`` where it gives none."""
    return f"{dataset}/{given}" if given else content_id(dataset, *parts)


def plain_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def choice_problem(dataset: str, given: object, stem: str, labels: list[str], texts: list[str], right: str) -> Problem:
    """A multiple-choice question: the letter, the text or both are right.

    The text alone is accepted only if no other choice has the same text.
    """
    choices = [text.strip() for text in texts]
    shown = "\n".join([stem.strip(), *(f"{label}. {text}" for label, text in zip(labels, choices, strict=True))])
    text = choices[labels.index(right)]
    answers = [right, f"{right}. {text}"] if text else [right]
    if text and choices.count(text) == 1:
        answers.append(text)
    question = Question(given_id(dataset, given, shown), shown, "qa", dataset=dataset)
    return Problem(question, Reference(tuple(answers)))


def choice_golds(parse: Callable[[Record], Problem]) -> Callable[[Record], tuple[str, ...]]:
    """The right letter of a record, alone and as a chat model writes it."""

    def golds(record: Record) -> tuple[str, ...]:
        letter = parse(record).reference.answers[0]
        return (letter, f"({letter})", f"The answer is {letter}.")

    return golds


def short(value: object) -> str:
    """``repr`` in at most 80 characters, for messages."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
