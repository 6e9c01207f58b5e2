"""Problems from a file or folder, whatever benchmark it holds: recognised by its fields, not by its name.

A record that cannot be read stops the load, with file, line and reason of every such record: a training set that is
silently smaller than its file is worse than none. Downloads and splits are not done here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from llm_as_judge.datasets import commonsenseqa, custom, gsm8k, hotpotqa, humaneval, math, mbpp, mmlu, squad2
from llm_as_judge.datasets.reading import files_in, read
from llm_as_judge.datasets.record import Record
from llm_as_judge.errors import DataError
from llm_as_judge.types import DOMAINS, Problem

Parser = Callable[[Record], Problem]


def load_file(
    path: str | Path, limit: int | None = None, fields: Mapping[str, Sequence[str]] = custom.FIELDS
) -> list[Problem]:
    """The first ``limit`` problems (all by default) of a file or folder. ``fields``: how a user's own records spell
    each name (``custom.FIELDS``). Raises ``DataError`` that names every bad record met.
    """
    path = Path(path)
    if limit is not None and limit < 1:
        raise DataError(f"limit must be >= 1, got {limit}")
    problems: list[Problem] = []
    faults: list[str] = []
    for file in files_in(path):
        for item in parsed(file, partial(_recognised, fields=fields)):
            if isinstance(item, Problem):
                problems.append(item)
            else:
                faults.append(item)
            if limit is not None and len(problems) == limit:
                break
        if limit is not None and len(problems) == limit:
            break
    if faults:
        raise DataError("\n".join(faults))
    if not problems:
        raise DataError(f"{path}: no problems in it")
    return problems


def parsed(path: Path, parse: Parser) -> Iterator[Problem | str]:
    """Every record of ``path`` as a problem, or as the line ``file:place: reason`` that tells why it is none."""
    for raw in read(path):
        if raw.record is None:
            yield f"{path}:{raw.place}: {raw.reason}"
            continue
        try:
            yield parse(raw.record)
        except DataError as error:
            yield f"{path}:{raw.place}: {error}"


def _recognised(record: Record, fields: Mapping[str, Sequence[str]]) -> Problem:
    parser = recognise(record, fields)
    return custom.parse(record, fields) if parser is custom.parse else parser(record)


def recognise(record: Record, fields: Mapping[str, Sequence[str]] = custom.FIELDS) -> Parser:
    """The parser of the benchmark that ``record`` comes from. Raises ``DataError`` naming its fields."""
    has = record.keys()
    named = custom.spelt(record, fields)
    if {"problem", "type"} <= named.keys() and (named["type"] in DOMAINS or not {"solution", "supporting_facts"} & has):
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
    if "problem" in named and {"answer", "tests"} & named.keys():
        raise DataError("field 'type' is missing: one of " + ", ".join(DOMAINS))
    raise DataError(
        f"fields {sorted(map(str, has))} are those of no known benchmark; the project's own format has "
        "problem, answer and type"
    )
