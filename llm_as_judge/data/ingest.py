"""Raw files -> a spool of normalised lines and one ``Row`` for each, by any number of processes.

A unit of work is a slice of a large ``.jsonl``, or a handful of files; what it yields does not depend on how the
work was cut. Every bad record is collected with file, line and reason. Memory: the rows, and one record at a time.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from llm_as_judge.data.files import Writer
from llm_as_judge.data.rows import Row, keys_of, line_of
from llm_as_judge.datasets import custom
from llm_as_judge.datasets.catalog import DATASETS
from llm_as_judge.datasets.reading import read
from llm_as_judge.errors import DataError
from llm_as_judge.types import Domain, Problem

_SLICE = 32 << 20  # bytes of a .jsonl in one unit
_WORTH_A_PROCESS = 16 << 20  # bytes; less is read before another process has started
_HANDFUL = 500  # small files in one unit


@dataclass(frozen=True, slots=True)
class Pool:
    """Raw files that belong together. ``dataset`` is a benchmark's name, or ``custom`` with ``fields``.

    ``split``: only records of that published split, where a file holds several.
    """

    name: str
    dataset: str
    files: tuple[Path, ...]
    split: str | None = None
    fields: Mapping[str, Sequence[str]] | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of one pool; ``number`` names its spool file."""

    pool: Pool
    number: int
    files: tuple[Path, ...]
    start: int
    end: int | None
    spool: Path
    seed: int

    @property
    def path(self) -> Path:
        return self.spool / f"{self.number}.jsonl"


@dataclass(frozen=True, slots=True)
class Part:
    """What a unit came to. ``rows`` are by domain; ``faults`` are ``file:place: reason``."""

    pool: str
    rows: dict[Domain, list[Row]]
    faults: list[str]


def units(pools: Sequence[Pool], spool: Path, seed: int) -> list[Unit]:
    """The work, cut."""
    found: list[Unit] = []

    def add(pool: Pool, files: tuple[Path, ...], start: int = 0, end: int | None = None) -> None:
        found.append(Unit(pool, len(found), files, start, end, spool, seed))

    for pool in pools:
        small: list[Path] = []
        for file in pool.files:
            size = file.stat().st_size
            if size < 1 << 20:
                small.append(file)
            elif file.suffix == ".jsonl" and size > _SLICE:
                for start, end in _slices(file, size):
                    add(pool, (file,), start, end)
            else:
                add(pool, (file,))
        for i in range(0, len(small), _HANDFUL):
            add(pool, tuple(small[i : i + _HANDFUL]))
    return found


def _slices(file: Path, size: int) -> Iterator[tuple[int, int]]:
    """Ranges of whole lines, about ``_SLICE`` bytes each."""
    start = 0
    with file.open("rb") as stream:
        while start < size:
            stream.seek(min(start + _SLICE, size))
            while (block := stream.readline(1 << 20)) and not block.endswith(b"\n"):
                pass
            end = stream.tell()
            yield start, end
            start = end


@contextmanager
def without_collection() -> Iterator[None]:
    """The cyclic garbage collector paused: rows hold no cycles, and it would walk all of them again and again."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def ingest(unit: Unit) -> Part:
    """Read, parse, normalise and spool one unit."""
    with without_collection():
        return _ingest(unit)


def _ingest(unit: Unit) -> Part:
    rows: dict[Domain, list[Row]] = {}
    faults: list[str] = []
    parse, split_of = _parser(unit.pool), None
    if unit.pool.split is not None:
        split_of = DATASETS[unit.pool.dataset].split_of
    with Writer(unit.path, lasting=False) as writer:
        for file in unit.files:
            for raw in read(file, unit.start, unit.end):
                try:
                    if raw.record is None:
                        raise DataError(raw.reason)
                    if split_of is not None and split_of(raw.record) != unit.pool.split:
                        continue
                    problem = parse(raw.record)
                except DataError as error:
                    faults.append(f"{file}:{_place(raw.place, unit)}: {error}")
                    continue
                line = line_of(problem)
                key, grams = keys_of(problem, unit.seed)
                row = Row(key, unit.number, writer.write(line), len(line), grams)
                rows.setdefault(problem.question.domain, []).append(row)
    return Part(unit.pool.name, rows, faults)


def _parser(pool: Pool) -> Callable[..., Problem]:
    if pool.dataset in DATASETS:
        return DATASETS[pool.dataset].parse
    fields = pool.fields or custom.FIELDS
    return lambda record: custom.parse(record, fields)


def _place(place: str, unit: Unit) -> str:
    """Line numbers inside a slice, made those of the file; only a fault pays for the count."""
    if not unit.start:
        return place
    before, left = 0, unit.start
    with unit.files[0].open("rb") as stream:
        while left > 0 and (block := stream.read(min(left, 1 << 20))):
            before += block.count(b"\n")
            left -= len(block)
    return str(before + int(place))


def ingest_all(work: Sequence[Unit], processes: int) -> Iterator[Part]:
    """Every unit's part, in the order of the units."""
    size = sum(
        file.stat().st_size if unit.end is None else unit.end - unit.start for unit in work for file in unit.files
    )
    if processes <= 1 or len(work) <= 1 or size < _WORTH_A_PROCESS:
        yield from map(ingest, work)
        return
    # spawn: a fork of a program with threads (torch, a test runner) may hang
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(min(processes, len(work)), context) as pool:
            yield from pool.map(ingest, work)
    except BrokenProcessPool as error:
        raise DataError(
            f"a worker of {processes} was killed, most likely for want of memory; try --processes 1"
        ) from error


class Lines:
    """Reads lines back from numbered files by place, without mapping them into memory. Close it in the end."""

    def __init__(self, paths: Callable[[int], Path]) -> None:
        self._paths = paths
        self._open: dict[int, int] = {}

    def read(self, part: int, offset: int, length: int) -> bytes:
        """``length`` bytes of file number ``part``."""
        if part not in self._open:
            if len(self._open) >= 128:
                self.close()
            self._open[part] = os.open(self._paths(part), os.O_RDONLY)
        line = os.pread(self._open[part], length, offset)
        if len(line) != length:
            raise DataError(f"{self._paths(part)}: was changed while it was in use")
        return line

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()
