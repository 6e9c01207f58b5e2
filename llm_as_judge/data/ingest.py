"""Raw files -> a spool of normalised lines and an index of them. Every bad record is collected with file, line and
reason. Memory: the index, and one record at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from llm_as_judge.data.benchmarks import custom
from llm_as_judge.data.catalog import Dataset
from llm_as_judge.data.files import Spool
from llm_as_judge.data.index import Entry, entry_of, line_of
from llm_as_judge.data.reading import read
from llm_as_judge.data.record import Faults
from llm_as_judge.errors import DataError
from llm_as_judge.types import Domain


@dataclass(frozen=True, slots=True)
class Pool:
    """Raw files that belong together: of a benchmark, or a user's own with ``fields`` spelt as those say.

    ``split``: only records of that published split, where a file holds several.
    """

    name: str
    files: tuple[Path, ...]
    dataset: Dataset | None = None
    split: str | None = None
    fields: Mapping[str, Sequence[str]] = field(default_factory=lambda: custom.FIELDS)


def ingest(pool: Pool, spool: Spool, seed: int, faults: Faults) -> dict[Domain, list[Entry]]:
    """Read, parse, normalise and spool a pool's problems; their index by domain. What is bad is added to ``faults``."""
    dataset = pool.dataset
    parse = dataset.parse if dataset else partial(custom.parse, fields=pool.fields)
    split_of = dataset.split_of if dataset and pool.split else None
    index: dict[Domain, list[Entry]] = {}
    for file in pool.files:
        for raw in read(file):
            try:
                if raw.record is None:
                    raise DataError(raw.reason)
                if split_of and split_of(raw.record) != pool.split:
                    continue
                problem = parse(raw.record)
            except DataError as error:
                faults.add(file, raw.place, error)
                continue
            line = line_of(problem)
            entry = entry_of(problem, seed, spool.add(line), len(line))
            index.setdefault(problem.question.domain, []).append(entry)
    return index
