"""Problems from a file or folder, whatever benchmark it holds: recognised by its fields, not by its name.

Reads ``.json``, ``.jsonl``, ``.csv`` (MMLU) and each of them gzipped; a folder is all such files under it in
sorted order (MATH). The first record that cannot be read stops the load with file, line and reason: a
training set that is silently smaller than its file is worse than none. Downloads and splits are not done
here.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from llm_as_judge.datasets import commonsenseqa, custom, gsm8k, hotpotqa, humaneval, math, mbpp, mmlu, squad2
from llm_as_judge.datasets.record import Record
from llm_as_judge.errors import DataError
from llm_as_judge.types import DOMAINS, Problem

_SUFFIXES = (".json", ".jsonl", ".csv")


def load_file(path: str | Path, limit: int | None = None) -> list[Problem]:
    """The first ``limit`` problems (all by default) of a file or folder. Raises ``DataError``."""
    path = Path(path)
    if limit is not None and limit < 1:
        raise DataError(f"limit must be >= 1, got {limit}")
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    files = sorted(f for f in path.rglob("*") if _suffix(f) in _SUFFIXES) if path.is_dir() else [path]
    problems = list(islice((problem for file in files for problem in _problems(file)), limit))
    if not problems:
        raise DataError(f"{path}: no problems in it")
    return problems


def _suffix(path: Path) -> str:
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix


def _problems(path: Path) -> Iterator[Problem]:
    for place, record in _records(path):
        with _at(path, place):
            problem = recognise(record)(record)
        yield problem


@contextmanager
def _at(path: Path, place: str) -> Iterator[None]:
    """Errors of reading one record get their file and place."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}:{place}: {error}") from error
    except ValueError as error:
        raise DataError(f"{path}:{place}: not JSON: {error}") from error


def recognise(record: Record) -> Callable[[Record], Problem]:
    """The parser of the benchmark that ``record`` comes from. Raises ``DataError`` naming its fields."""
    has = record.keys()
    if {"problem", "question"} & has and {"type", "problem_type", "domain"} & has:
        kind = record.get("type", record.get("problem_type", record.get("domain")))
        if kind in DOMAINS or not {"solution", "supporting_facts"} & has:
            return custom.parse
    if {"problem", "solution"} <= has:
        return math.parse
    if {"prompt", "entry_point", "test"} <= has:
        return humaneval.parse
    if "test_list" in has and {"text", "prompt"} & has:
        return mbpp.parse
    if {"question", "answerKey"} <= has:
        return commonsenseqa.parse
    if {"question", "choices", "answer"} <= has:
        return mmlu.parse
    if {"question", "answer", "context", "supporting_facts"} <= has:
        return hotpotqa.parse
    if {"question", "context", "answers"} <= has:
        return squad2.parse
    if "#### " in str(record.get("answer", "")) and "question" in has:
        return gsm8k.parse
    if {"problem", "question"} & has and {"answer", "answers", "ground_truth", "tests"} & has:
        raise DataError("field 'type' is missing: one of " + ", ".join(DOMAINS))
    raise DataError(
        f"fields {sorted(map(str, has))} are those of no known benchmark; the project's own format has "
        "problem, answer and type"
    )


def _records(path: Path) -> Iterator[tuple[str, Record]]:
    """Each record with its place: a line number, or ``record N`` inside one JSON document."""
    suffix = _suffix(path)
    if suffix not in _SUFFIXES:
        raise DataError(f"{path}: cannot read {path.suffix or 'a file without suffix'}; use {', '.join(_SUFFIXES)}")
    text = _text(path)
    if suffix == ".csv":
        reader = csv.reader(io.StringIO(text, newline=""))
        for row in reader:
            place = str(reader.line_num)
            with _at(path, place):
                record = mmlu.from_row(row)
            yield place, record
    elif suffix == ".jsonl":
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                with _at(path, str(number)):
                    record = _object(json.loads(line))
                yield str(number), record
    else:
        for number, item in enumerate(_documents(path, text), 1):
            place = f"record {number}"
            with _at(path, place):
                record = _object(item)
            yield place, record


def _documents(path: Path, text: str) -> list[Any]:
    """The records of one JSON document: an array, SQuAD's nested object, or a single problem."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    if isinstance(document, dict) and isinstance(document.get("data"), list):
        articles = document["data"]
        nested = any(isinstance(article, dict) and "paragraphs" in article for article in articles)
        with _at(path, "1"):
            return list(squad2.flatten(document)) if nested else articles
    return document if isinstance(document, list) else [document]


def _object(value: Any) -> Record:
    if not isinstance(value, dict):
        raise DataError(f"must be an object, got {type(value).__name__}")
    return value


def _text(path: Path) -> str:
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise DataError(f"{path}:{line}: not UTF-8: {error.reason}") from error
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
