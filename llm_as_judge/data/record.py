"""Reading fields of a raw record, shared by the benchmark files.

A field that is missing or of the wrong type is a ``DataError`` with the reason alone; ``load`` adds file and
line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llm_as_judge.errors import DataError

Record = Mapping[str, Any]


class Faults:
    """Bad records as ``file:place: reason``; all are counted, the first ``SHOWN`` are kept."""

    SHOWN = 20

    def __init__(self) -> None:
        self.count, self._lines = 0, list[str]()

    def add(self, file: Path, place: str, reason: object) -> None:
        self.count += 1
        if self.count <= self.SHOWN:
            self._lines.append(f"{file}:{place}: {reason}")

    def __str__(self) -> str:
        """A line for each, and how many more there are."""
        more = self.count - len(self._lines)
        return "\n".join([*self._lines, *([f"... and {more:,} more bad records"] if more else [])])


def text_of(record: Record, key: str) -> str:
    """The non-empty string under ``key``, with plain line ends (MBPP has CRLF, and CR CR LF)."""
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"field {key!r} must be a non-empty string, got {short(value)}")
    return plain_lines(value)


def list_of(record: Record, key: str, kind: type = str) -> list[Any]:
    """The list under ``key``, all of whose items are of ``kind``."""
    value = record.get(key)
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise DataError(f"field {key!r} must be a list of {kind.__name__}, got {short(value)}")
    return value


def mapping_of(record: Record, key: str) -> Record:
    """The object under ``key``."""
    value = record.get(key)
    if not isinstance(value, dict):
        raise DataError(f"field {key!r} must be an object, got {short(value)}")
    return value


def content_id(dataset: str, *parts: str) -> str:
    """An id made of the content, for benchmarks that give none: the same problem has it in every file."""
    return f"{dataset}/{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"


def plain_lines(text: str) -> str:
    """``text`` with every line end as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def optional_text(record: Record, key: str) -> str:
    """The string under ``key``, with plain line ends; empty where it is absent or null."""
    return text_of(record, key) if record.get(key) not in (None, "") else ""


def choices_text(stem: str, labels: list[str], texts: list[str]) -> str:
    """A multiple-choice question as the policy reads it."""
    return "\n".join([stem.strip(), *(f"{label}. {text.strip()}" for label, text in zip(labels, texts, strict=True))])


def choice_answers(label: str, text: str, texts: list[str]) -> tuple[str, ...]:
    """Ways to name the right choice; its text alone only where no other choice reads the same."""
    text, same = text.strip(), sum(other.strip() == text.strip() for other in texts)
    named = (label, f"{label}. {text}") if text else (label,)
    return (*named, text) if text and same == 1 else named


def short(value: object) -> str:
    """``repr`` in at most 80 characters, for messages."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
