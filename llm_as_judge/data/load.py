"""Problems from a file or folder, whatever benchmark it holds: recognised by its fields, not by its name.

A record that cannot be read stops the load, with file, line and reason of every such record: a training set that is
silently smaller than its file is worse than none. Downloads and splits are not done here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from llm_as_judge.data.benchmarks import custom
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.reading import files_in, read
from llm_as_judge.data.record import Faults, Record
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
    faults = Faults()
    for file in files_in(path):
        problems += islice(parsed(file, partial(parse_record, fields=fields), faults), limit and limit - len(problems))
    if faults.count:
        raise DataError(str(faults))
    if not problems:
        raise DataError(f"{path}: no problems in it")
    return problems


def parsed(path: Path, parse: Parser, faults: Faults) -> Iterator[Problem]:
    """Every record of ``path`` as a problem; those that are none are added to ``faults``."""
    for raw in read(path):
        if raw.record is None:
            faults.add(path, raw.place, raw.reason)
            continue
        try:
            yield parse(raw.record)
        except DataError as error:
            faults.add(path, raw.place, error)


def parse_record(record: Record, fields: Mapping[str, Sequence[str]] = custom.FIELDS) -> Problem:
    """A record of any benchmark, or of the project's own format. Raises ``DataError`` with the reason."""
    dataset = DATASETS.get(recognise(record, fields))
    return dataset.parse(record) if dataset else custom.parse(record, fields)


def recognise(record: Record, fields: Mapping[str, Sequence[str]] = custom.FIELDS) -> str:
    """The benchmark that ``record`` comes from, ``custom`` for the project's own format. Raises ``DataError`` naming
    its fields.
    """
    has = record.keys()
    named = custom.spelt(record, fields)
    if {"problem", "type"} <= named.keys() and (named["type"] in DOMAINS or not {"solution", "supporting_facts"} & has):
        return "custom"
    for name, dataset in reversed(list(DATASETS.items())):
        if dataset.recognises(record):
            return name
    if "problem" in named and {"answer", "tests"} & named.keys():
        raise DataError("field 'type' is missing: one of " + ", ".join(DOMAINS))
    raise DataError(
        f"fields {sorted(map(str, has))} are those of no known benchmark; the project's own format has "
        "problem, answer and type"
    )
