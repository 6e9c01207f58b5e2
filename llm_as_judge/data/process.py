"""``llm-as-judge data process``: raw files -> per-dataset splits, test sets and the mix, with ``info.json``.

Each problem is held in memory once, as the line that is written, so memory grows linearly with the input. Nothing in
``out`` changes before all files are written to a staging folder.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from llm_as_judge.config.data import DataConfig
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.dataset import Dataset
from llm_as_judge.data.files import replacing, write_lines
from llm_as_judge.data.forms import NO_MAPPING, Forms, to_record
from llm_as_judge.data.reading import Faults, files_in, parsed
from llm_as_judge.data.record import Record
from llm_as_judge.data.sampler import Mixture
from llm_as_judge.data.settings import Mix, raw_files, sources_of, splits_there
from llm_as_judge.data.split import Entry, Sides, contamination, decontaminated, entry_of, split, split_official
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.files import sha256_of, write_json
from llm_as_judge.types import Domain, Problem

SplitMode = Literal["plan-c", "official"]
SIDES = ("train", "val", "test")
INFO = "mixed/info.json"
_STALE = ("mixed/*_mixed.jsonl", "test/*_test.jsonl", "processed/*.jsonl")
#: A set that is repeated more often than this in the training mix is mentioned in ``notes``.
_OFTEN = 20
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Job:
    """A request to process raw files.

    ``custom``: users' own files, ``own`` has the fields and domains of their records. ``any_split``: if the configured
    splits have no files, use those that do. ``tell`` receives progress messages.
    """

    mix: Mix
    raw: Path
    out: Path
    mode: SplitMode = "plan-c"
    custom: tuple[Path, ...] = ()
    own: DataConfig = NO_MAPPING
    any_split: bool = False
    tell: Callable[[str], None] = lambda line: None


@dataclass(frozen=True, slots=True)
class _Pool:
    """Raw files that are read together. ``parse`` returns None for records of another pool; None: of any form."""

    name: str
    files: Sequence[Path]
    parse: Callable[[Record], Problem | None] | None

    def fingerprint(self) -> dict[str, Any]:
        """Compute number, bytes and one checksum of the files, independent of their order and folder."""
        digests = "\n".join(sorted(sha256_of(file) for file in self.files))
        size = sum(file.stat().st_size for file in self.files)
        return {"files": len(self.files), "bytes": size, "sha256": hashlib.sha256(digests.encode()).hexdigest()}


def process(job: Job) -> dict[str, Any]:
    """Process the files; returns the content of ``info.json``.

    Raises ``ConfigError``, ``DataError``, with every bad record, or ``OSError``, and leaves ``out`` unchanged.
    """
    if job.mode not in ("plan-c", "official"):
        raise ConfigError(f"--split must be plan-c or official, got {job.mode!r}")
    mix, used = job.mix, _splits(job)
    written = [side for side in SIDES if side != "val" or mix.val_fraction]
    pools = _pools(job, used)
    entries = _read(job, pools)
    domains: dict[str, Domain] = {name: DATASETS[name].domain for name in mix.datasets}
    domains |= {name: domain for name in entries if (domain := name.removeprefix("custom_")) != name}
    if unknown := [d for d in domains.values() if d not in mix.domain_ratios]:
        shares = ", ".join(f"{domain}: 1" for domain in dict.fromkeys(domains.values()))
        cure = f"give all their shares: --ratios '{{{shares}}}'"
        raise ConfigError(f"domain {unknown[0]!r} has no share in the mix; {cure}")
    datasets = decontaminated({name: _sides(job, name, entries) for name in domains})
    entries.clear()
    sets = {
        name: {
            "domain": domains[name],
            "splits": used.get(name, []),
            "records": sum(map(len, (sides.train, sides.val, sides.test))) + sum(sides.dropped.values()),
            **{side: len(getattr(sides, side)) for side in SIDES},
            "dropped": sides.dropped,
        }
        for name, sides in datasets.items()
    }
    info: dict[str, Any] = {
        "split": job.mode,
        **mix.model_dump(mode="json", include={"seed", "train_test", "val_fraction", "domain_ratios"}),
        "raw": {pool.name: pool.fingerprint() for pool in pools},
        "datasets": sets,
        "mixed": {},
        "contamination": contamination(datasets),
        "files": {},
    }
    with replacing(job.out, _STALE) as staged:
        for name, sides in datasets.items():
            places = {f"processed/{name}_{side}.jsonl": getattr(sides, side) for side in written}
            for place, own in (places | {f"test/{name}_test.jsonl": sides.test}).items():
                info["files"][place] = write_lines(staged / place, (entry.line for entry in own))
            job.tell(f"{name}: {len(sides.train):,} train, {len(sides.val):,} validation, {len(sides.test):,} test")
        for side in written:
            _mix(job, staged, side, datasets, info)
        info["notes"] = _notes(job, info)
        write_json(staged / INFO, info)
    return info


def _splits(job: Job) -> dict[str, list[str]]:
    """List the splits that are used of every benchmark."""
    used = {}
    for name, source in sources_of(job.mix.datasets).items():
        used[name] = list(source.official.values() if job.mode == "official" else source.pool)
        if job.mode == "plan-c" and job.any_split and (there := splits_there(job.raw, name, source)):
            used[name] = [split for split in source.pool if split in there] or there
    return used


def _pools(job: Job, used: Mapping[str, Sequence[str]]) -> list[_Pool]:
    """List what is read: one pool for each benchmark, two for one with published splits, one for users' own files."""
    pools, missing = list[_Pool](), list[str]()
    for name, source in sources_of(job.mix.datasets).items():
        dataset, parts = DATASETS[name], {name: list(used[name])}
        if job.mode == "official":
            parts = {f"{name} {side}": [published] for side, published in source.official.items()}
        for pool, splits in parts.items():
            parse: Callable[[Record], Problem | None] = dataset.parse
            if job.mode == "official" and dataset.split_of:
                parse, splits = partial(_of_split, dataset, splits[0]), list(source.splits)
            try:
                files = [file for split in splits for file in raw_files(job.raw, name, source, split)]
                pools.append(_Pool(pool, files, parse))
            except DataError as error:
                missing.append(str(error))
    if missing:
        raise DataError("\n".join(missing))
    if job.custom:
        pools.append(_Pool("custom", [file for path in job.custom for file in files_in(path)], None))
    if not pools:
        raise ConfigError("there is nothing to process: name --datasets or --custom FILE")
    return pools


def _of_split(dataset: Dataset, published: str, record: Record) -> Problem | None:
    """Parse a record of the ``published`` split; None for those of other splits."""
    return dataset.parse(record) if dataset.split_of and dataset.split_of(record) == published else None


def _read(job: Job, pools: Sequence[_Pool]) -> dict[str, list[Entry]]:
    """Read each pool's entries, users' own by domain (``custom_math``). Raises ``DataError`` with all bad records."""
    entries: dict[str, list[Entry]] = {}
    faults, seed, unanswered = Faults(), job.mix.seed, 0
    for pool in pools:
        for file in pool.files:
            for _, problem in parsed(file, pool.parse or Forms(file, job.own).parse, faults):
                unanswered += not problem.reference.given
                name = f"custom_{problem.question.domain}" if pool.name == "custom" else pool.name
                entries.setdefault(name, []).append(entry_of(problem, seed, _line(to_record(problem))))
    if faults.count:
        raise DataError(f"{faults}\n{faults.count:,} bad records; nothing was written to {job.out}")
    if not entries:
        raise DataError(f"there are no records in {', '.join(str(file) for pool in pools for file in pool.files)}")
    job.tell(f"read {sum(map(len, entries.values())):,} records")
    if unanswered:
        job.tell(f"{unanswered:,} of them have no answer: set judge.function, rubric or relative")
    return entries


def _line(record: Record) -> bytes:
    """Write the record as a JSON line, spaced as by ``json.dumps``."""
    return msgspec.json.format(_encode(record), indent=0) + b"\n"


def _sides(job: Job, name: str, entries: Mapping[str, list[Entry]]) -> Sides:
    mix = job.mix
    if job.mode == "official" and name in DATASETS:
        train, test = (entries.get(f"{name} {side}", []) for side in ("train", "test"))
        sides = split_official(train, test, mix.val_fraction)
    else:
        sides = split(entries.get(name, []), mix.train_test, mix.val_fraction)
    if not sides.train and not sides.test:
        raise DataError(f"{name}: no problems in its files")
    return sides


def _mix(job: Job, staged: Path, side: str, datasets: Mapping[str, Sides], info: dict[str, Any]) -> None:
    """Write ``mixed/<side>_mixed.jsonl`` and add its facts to ``info``."""
    mix = job.mix
    size = {"train": mix.train_size, "test": mix.test_size, "val": round(mix.train_size * mix.val_fraction)}[side]
    entries: dict[str, list[Entry]] = {name: getattr(sides, side) for name, sides in datasets.items()}
    domains: dict[str, Domain] = {name: facts["domain"] for name, facts in info["datasets"].items()}
    ratios = {domain: ratio for domain, ratio in mix.domain_ratios.items() if domain in domains.values()}
    mixture = Mixture({name: len(own) for name, own in entries.items()}, domains, ratios, side, mix.seed)

    def lines() -> Iterator[bytes]:
        for name, index, repeat in mixture.take(size):
            line = entries[name][index].line
            yield _line({**msgspec.json.decode(line), "repeat": repeat}) if repeat else line

    place = f"mixed/{side}_mixed.jsonl"
    info["files"][place] = facts = write_lines(staged / place, lines())
    counts = dict.fromkeys(ratios, 0)
    for name, drawn in mixture.drawn.items():
        counts[domains[name]] += drawn
        unique = min(drawn, len(entries[name]))
        repetition = round(drawn / (unique or 1), 2)
        info["datasets"][name][f"{side}_mix"] = {"lines": drawn, "unique": unique, "repetition": repetition}
    info["mixed"][side] = {**facts, "domains": counts}
    job.tell(f"mixed {size:,} for {side}")


def _notes(job: Job, info: Mapping[str, Any]) -> list[str]:
    """Say what a user should know before training on the mix."""
    notes = []
    for name, source in sources_of(job.mix.datasets).items() if job.mode == "plan-c" else ():
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
    return notes
