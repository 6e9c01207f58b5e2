"""``llm-as-judge data process``: raw files -> per-dataset splits, test sets and the mix, with ``info.json`` last.

Each problem is held in memory once, as the line that is written, so memory grows linearly with the input. Nothing in
``out`` changes before all files are written to a staging folder.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from llm_as_judge.data.benchmarks import custom
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.dataset import Dataset
from llm_as_judge.data.files import TEST_INDEX, move_into_place, staging, write_lines
from llm_as_judge.data.mixture import Mixture
from llm_as_judge.data.reading import Faults, files_in, parsed
from llm_as_judge.data.record import Record
from llm_as_judge.data.settings import DatasetSettings, raw_files, splits_there
from llm_as_judge.data.split import Entry, Sides, contamination, decontaminated, entry_of, split, split_official
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.files import sha256_of, write_json
from llm_as_judge.types import Domain, Problem

SplitMode = Literal["plan-c", "official"]
SIDES = ("train", "val", "test")
INFO = "mixed/info.json"
#: A set that is repeated more often than this in the training mix is mentioned in ``notes``.
_OFTEN = 20
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Job:
    """A request to process raw files.

    ``custom``: users' own files. ``any_split``: if the configured splits have no files, use those that do. ``tell``
    receives progress messages.
    """

    settings: DatasetSettings
    raw: Path
    out: Path
    mode: SplitMode = "plan-c"
    custom: tuple[Path, ...] = ()
    any_split: bool = False
    tell: Callable[[str], None] = field(default=lambda line: None)


@dataclass(frozen=True, slots=True)
class _Pool:
    """Raw files that are read together. ``parse`` returns None for records that do not belong to the pool."""

    name: str
    files: Sequence[Path]
    parse: Callable[[Record], Problem | None]

    def fingerprint(self) -> dict[str, Any]:
        """Number, bytes and one checksum of the files, independent of their order and folder."""
        digests = "\n".join(sorted(sha256_of(file) for file in self.files))
        size = sum(file.stat().st_size for file in self.files)
        return {"files": len(self.files), "bytes": size, "sha256": hashlib.sha256(digests.encode()).hexdigest()}


def process(job: Job) -> dict[str, Any]:
    """Process the files; returns the content of ``info.json``.

    Raises ``ConfigError`` or ``DataError``, the latter with every bad record, and leaves ``out`` unchanged.
    """
    if job.mode not in ("plan-c", "official"):
        raise ConfigError(f"--split must be plan-c or official, got {job.mode!r}")
    pools, splits = _pools(job)
    mix = job.settings.mix
    index = _read(job, pools)
    domains = {name: DATASETS[name].domain for name in mix.datasets}
    domains |= {f"custom_{domain}": domain for domain in index.get("custom", {})}
    datasets = decontaminated({name: _sides(job, name, domain, index) for name, domain in domains.items()})
    index.clear()
    wanted = [side for side in SIDES if side != "val" or mix.val_fraction]
    files: dict[str, dict[str, Any]] = {}
    info: dict[str, Any] = {
        "split": job.mode,
        **mix.model_dump(mode="json", include={"seed", "train_test", "val_fraction", "domain_ratios"}),
        "raw": {pool.name: pool.fingerprint() for pool in pools},
        "datasets": {
            name: {
                "domain": domains[name],
                "splits": splits.get(name, []),
                "records": sides.size + sum(sides.dropped.values()),
                **{side: len(getattr(sides, side)) for side in SIDES},
                "dropped": dict(sides.dropped),
            }
            for name, sides in datasets.items()
        },
        "mixed": {},
        "contamination": contamination(datasets),
    }
    with staging(job.out) as staged:
        for name, sides in datasets.items():
            for side in wanted:
                place = f"processed/{name}_{side}.jsonl"
                files[place] = write_lines(staged / place, (entry.line for entry in getattr(sides, side)))
            files[f"test/{name}_test.jsonl"] = files[f"processed/{name}_test.jsonl"]
            (staged / "test").mkdir(exist_ok=True)
            shutil.copyfile(staged / f"processed/{name}_test.jsonl", staged / f"test/{name}_test.jsonl")
            job.tell(f"{name}: {len(sides.train):,} train, {len(sides.val):,} validation, {len(sides.test):,} test")
        for side in wanted:
            files[f"mixed/{side}_mixed.jsonl"] = _mix(job, staged, side, datasets, domains, info)
        info["notes"] = _notes(job, info)
        info["files"] = dict(sorted(files.items()))
        tests = {
            name: {"file": f"{name}_test.jsonl", "domain": domain, **files[f"test/{name}_test.jsonl"]}
            for name, domain in domains.items()
        }
        write_json(staged / "test" / TEST_INDEX, {"split": job.mode, "datasets": tests})
        write_json(staged / INFO, info)
        stale = {"mixed": "*_mixed.jsonl", "test": "*_test.jsonl", "processed": "*.jsonl"}
        move_into_place(staged, job.out, INFO, stale)
    return info


def _pools(job: Job) -> tuple[list[_Pool], dict[str, list[str]]]:
    """The pools to read, and the splits that are used of every benchmark."""
    pools, used, missing = list[_Pool](), dict[str, list[str]](), list[str]()

    def add(name: str, splits: Sequence[str], parse: Callable[[Record], Problem | None]) -> None:
        dataset, _, _ = name.partition(" ")
        try:
            files = [file for part in splits for file in raw_files(job.raw, dataset, sources[dataset], part)]
            pools.append(_Pool(name, files, parse))
        except DataError as error:
            missing.append(str(error))

    sources = job.settings.sources(job.settings.mix.datasets)
    for name, source in sources.items():
        dataset = DATASETS[name]
        if job.mode == "official":
            used[name] = list(source.official.values())
            for side, published in source.official.items():
                if dataset.split_of:
                    add(f"{name} {side}", list(source.splits), partial(_of_split, dataset, published))
                else:
                    add(f"{name} {side}", [published], dataset.parse)
            continue
        used[name] = list(source.pool)
        if job.any_split and (there := splits_there(job.raw, name, source)):
            used[name] = [split for split in source.pool if split in there] or there
        add(name, used[name], dataset.parse)
    if missing:
        raise DataError("\n".join(missing))
    if job.custom:
        own = [file for path in job.custom for file in files_in(path)]
        pools.append(_Pool("custom", own, partial(custom.parse, fields=job.settings.fields)))
    if not pools:
        raise ConfigError("there is nothing to process: name --datasets or --custom FILE")
    return pools, used


def _of_split(dataset: Dataset, published: str, record: Record) -> Problem | None:
    """The problem of a record of the ``published`` split; None for those of other splits."""
    return dataset.parse(record) if dataset.split_of and dataset.split_of(record) == published else None


def _read(job: Job, pools: Sequence[_Pool]) -> dict[str, dict[Domain, list[Entry]]]:
    """The entries of every pool, by domain. Raises ``DataError`` with every bad record."""
    index: dict[str, dict[Domain, list[Entry]]] = {}
    faults, seed, count = Faults(), job.settings.mix.seed, 0
    for pool in pools:
        entries = index.setdefault(pool.name, {})
        for file in pool.files:
            for _, problem in parsed(file, pool.parse, faults):
                line = _line(custom.to_record(problem))
                entries.setdefault(problem.question.domain, []).append(entry_of(problem, seed, line))
                count += 1
    if faults.count:
        raise DataError(f"{faults}\n{faults.count:,} bad records; nothing was written to {job.out}")
    if not count:
        raise DataError(f"there are no records in {', '.join(str(file) for pool in pools for file in pool.files)}")
    job.tell(f"read {count:,} records")
    return index


def _line(record: Record) -> bytes:
    """The record as a JSON line, spaced as by ``json.dumps``."""
    return msgspec.json.format(_encode(record), indent=0) + b"\n"


def _sides(job: Job, name: str, domain: Domain, index: Mapping[str, Mapping[Domain, list[Entry]]]) -> Sides:
    mix = job.settings.mix
    if name.startswith("custom_"):
        return split(index["custom"][domain], mix.train_test, mix.val_fraction)
    if job.mode == "official":
        train, test = (index.get(f"{name} {side}", {}).get(domain, []) for side in ("train", "test"))
        sides = split_official(train, test, mix.val_fraction)
    else:
        sides = split(index[name].get(domain, []), mix.train_test, mix.val_fraction)
    if not sides.train and not sides.test:
        raise DataError(f"{name}: no problems in its files")
    return sides


def _mix(
    job: Job,
    staged: Path,
    side: str,
    datasets: Mapping[str, Sides],
    domains: Mapping[str, Domain],
    info: dict[str, Any],
) -> dict[str, Any]:
    """Write ``mixed/<side>_mixed.jsonl`` and add its counts to ``info``; what the file holds."""
    mix = job.settings.mix
    size = {"train": mix.train_size, "test": mix.test_size, "val": round(mix.train_size * mix.val_fraction)}[side]
    entries: dict[str, list[Entry]] = {name: getattr(sides, side) for name, sides in datasets.items()}
    ratios = {domain: ratio for domain, ratio in mix.domain_ratios.items() if domain in domains.values()}
    mixture = Mixture({name: len(own) for name, own in entries.items()}, domains, ratios, side, mix.seed)

    def lines() -> Iterator[bytes]:
        for slot in mixture.take(size):
            line = entries[slot.name][slot.index].line
            yield _line({**msgspec.json.decode(line), "repeat": slot.repeat}) if slot.repeat else line

    facts = write_lines(staged / f"mixed/{side}_mixed.jsonl", lines())
    counts = dict.fromkeys(ratios, 0)
    for name, drawn in mixture.drawn.items():
        counts[domains[name]] += drawn
        unique = min(drawn, len(entries[name]))
        repetition = round(drawn / (unique or 1), 2)
        info["datasets"][name][f"{side}_mix"] = {"lines": drawn, "unique": unique, "repetition": repetition}
    largest = mixture.largest_without_repeats()
    info["mixed"][side] = {**facts, "domains": counts, "largest_without_repeats": largest}
    job.tell(f"mixed {size:,} for {side}")
    return facts


def _notes(job: Job, info: Mapping[str, Any]) -> list[str]:
    notes = []
    for name, source in job.settings.sources(job.settings.mix.datasets).items() if job.mode == "plan-c" else ():
        used, wanted = (", ".join(splits) for splits in (info["datasets"][name]["splits"], source.pool))
        if used != wanted:
            notes.append(f"{name}: {wanted} had no files; {used} taken instead (--any-split)")
        if source.pools_test_problems:
            notes.append(f"{name}: the training part holds published test problems; do not compare with papers")
    for name, facts in info["datasets"].items():
        drawn = facts.get("train_mix")  # absent for a set without training problems
        if drawn and drawn["repetition"] > _OFTEN:
            unique, times = drawn["unique"], drawn["repetition"]
            notes.append(f"{name}: each of {unique} training problems is {times:.0f} times in the training mix")
    for name, shared in info["contamination"].items():
        if shared["context"]:
            notes.append(f"{name}: {shared['context']} test problems share their context with a training problem")
    return notes
