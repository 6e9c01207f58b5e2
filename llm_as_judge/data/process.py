"""``llm-as-judge data process``: raw files -> per-dataset splits, test sets and the mix, with ``info.json`` last.

Memory holds an index entry a problem, never the texts: lines go to a spool and are copied from there, as bytes, to
every file they belong to. Nothing under ``out`` is touched before everything is written aside.
"""

from __future__ import annotations

import gc
import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.files import TEST_INDEX, Spool, Writer, move_into_place, sha256_of, staging, writing
from llm_as_judge.data.index import Entry, repeated
from llm_as_judge.data.ingest import Pool, ingest
from llm_as_judge.data.mixture import Mixture
from llm_as_judge.data.reading import files_in
from llm_as_judge.data.record import Faults
from llm_as_judge.data.settings import DatasetSettings, raw_files, splits_there
from llm_as_judge.data.split import Sides, contamination, decontaminated, split, split_official
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.files import write_json
from llm_as_judge.types import Domain

SplitMode = Literal["plan-c", "official"]
SIDES = ("train", "val", "test")
INFO = "mixed/info.json"
#: A set that comes more often than this in the training mix is named in ``notes``.
_OFTEN = 20


@dataclass(frozen=True, slots=True)
class Job:
    """What to process. ``custom``: users' own files; ``any_split``: where the pool's splits have no files, take those
    that have.
    """

    settings: DatasetSettings
    raw: Path
    out: Path
    mode: SplitMode = "plan-c"
    custom: tuple[Path, ...] = ()
    any_split: bool = False
    tell: Callable[[str], None] = field(default=lambda line: None)


def process(job: Job) -> dict[str, Any]:
    """Do it; the content of ``info.json``. Raises ``ConfigError`` or ``DataError``, with every bad record named, and
    leaves ``out`` as it was.
    """
    if job.mode not in ("plan-c", "official"):
        raise ConfigError(f"--split must be plan-c or official, got {job.mode!r}")
    pools, splits = _pools(job)
    mix = job.settings.mix
    wanted = [side for side in SIDES if side != "val" or mix.val_fraction]
    with staging(job.out, "process") as aside, closing(Spool(aside / "spool.jsonl")) as spool, _without_collection():
        index: dict[str, dict[Domain, list[Entry]]] = {}
        faults = Faults()
        for pool in pools:
            index[pool.name] = ingest(pool, spool, mix.seed, faults)
        if faults.count:
            raise DataError(f"{faults}\n{faults.count:,} bad records; nothing was written to {job.out}")
        spool.flush()
        job.tell(f"read {sum(len(e) for by_domain in index.values() for e in by_domain.values()):,} records")
        datasets, domains = _split(job, index)
        del index
        staged = aside / "out"
        files: dict[str, dict[str, Any]] = {}
        for name, sides in datasets.items():
            for side in wanted:
                files |= _write_side(staged, spool, name, side, getattr(sides, side))
            job.tell(f"{name}: {len(sides.train):,} train, {len(sides.val):,} validation, {len(sides.test):,} test")
        info = _info(job, pools, splits, datasets, domains)
        for side in wanted:
            files[f"mixed/{side}_mixed.jsonl"] = _mix(job, staged, spool, side, datasets, domains, info)
        info["notes"] += _notes(info)
        info["files"] = dict(sorted(files.items()))
        tests = {
            name: {"file": f"{name}_test.jsonl", "domain": domains[name], **files[f"test/{name}_test.jsonl"]}
            for name in datasets
        }
        with writing(job.out):
            write_json(staged / "test" / TEST_INDEX, {"split": job.mode, "datasets": tests})
            write_json(staged / INFO, info)
        stale = {"mixed": "*_mixed.jsonl", "test": "*_test.jsonl", "processed": "*.jsonl"}
        move_into_place(staged, job.out, INFO, stale)
    return info


@contextmanager
def _without_collection() -> Iterator[None]:
    """The cyclic garbage collector paused: the index holds no cycles, and it would be walked again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _pools(job: Job) -> tuple[list[Pool], dict[str, list[str]]]:
    """What to read, and the splits that this takes of every benchmark."""
    pools, taken, missing = list[Pool](), dict[str, list[str]](), list[str]()
    for name, source in job.settings.sources(job.settings.mix.datasets).items():
        wanted: dict[str, tuple[list[str], str | None]] = {name: (list(source.pool), None)}
        if job.mode == "official":
            one_file = DATASETS[name].split_of is not None
            wanted = {
                f"{name} {side}": (list(source.release) if one_file else [split_], split_ if one_file else None)
                for side, split_ in source.official.items()
            }
            taken[name] = list(source.official.values())
        elif job.any_split:
            there = splits_there(job.raw, name, source)
            wanted = {name: ([s for s in source.pool if s in there] or there or list(source.pool), None)}
        for pool, (splits, only) in wanted.items():
            taken.setdefault(name, splits)
            try:
                files = [file for s in splits for file in raw_files(job.raw, name, source, s)]
            except DataError as error:
                missing.append(str(error))
                continue
            pools.append(Pool(pool, tuple(files), DATASETS[name], only))
    if missing:
        raise DataError("\n".join(missing))
    if job.custom:
        own = [file for path in job.custom for file in files_in(path)]
        pools.append(Pool("custom", tuple(own), fields=job.settings.fields))
    if not pools:
        raise ConfigError("there is nothing to process: name --datasets or --custom FILE")
    return pools, taken


def _split(job: Job, index: Mapping[str, Mapping[Domain, list[Entry]]]) -> tuple[dict[str, Sides], dict[str, Domain]]:
    """Every dataset's sides, and its domain."""
    mix, sides, domains = job.settings.mix, dict[str, Sides](), dict[str, Domain]()
    for name in mix.datasets:
        domain = DATASETS[name].domain
        if job.mode == "official":
            train, test = (index.get(f"{name} {side}", {}).get(domain, []) for side in ("train", "test"))
            sides[name] = split_official(train, test, mix.val_fraction)
        else:
            sides[name] = split(index.get(name, {}).get(domain, []), mix.train_test, mix.val_fraction)
        domains[name] = domain
        if not sides[name].train and not sides[name].test:
            raise DataError(f"{name}: no problems in its files")
    for domain, own in index.get("custom", {}).items():
        sides[f"custom_{domain}"] = split(own, mix.train_test, mix.val_fraction)
        domains[f"custom_{domain}"] = domain
    return decontaminated(sides), domains


def _write_side(
    staged: Path, spool: Spool, name: str, side: str, entries: Sequence[Entry]
) -> dict[str, dict[str, Any]]:
    """``processed/<name>_<side>.jsonl``, and for the test side its copy in ``test``; what they hold, by name."""
    place = f"processed/{name}_{side}.jsonl"
    with Writer(staged / place) as writer:
        for entry in entries:
            writer.write(spool.read(entry.offset, entry.length))
    if side != "test":
        return {place: writer.facts}
    copy = f"test/{name}_test.jsonl"
    with writing(staged / copy):
        (staged / copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(staged / place, staged / copy)
    return {place: writer.facts, copy: writer.facts}


def _mix(
    job: Job,
    staged: Path,
    spool: Spool,
    side: str,
    datasets: Mapping[str, Sides],
    domains: Mapping[str, Domain],
    info: dict[str, Any],
) -> dict[str, Any]:
    """``mixed/<side>_mixed.jsonl``; what it holds. Notes in ``info`` how often each dataset comes."""
    mix = job.settings.mix
    size = {"train": mix.train_size, "test": mix.test_size, "val": round(mix.train_size * mix.val_fraction)}[side]
    entries: dict[str, list[Entry]] = {name: getattr(datasets[name], side) for name in sorted(datasets)}
    sizes = {name: len(side_entries) for name, side_entries in entries.items()}
    present = set(domains.values())
    ratios = {domain: ratio for domain, ratio in mix.domain_ratios.items() if domain in present}
    mixture = Mixture(sizes, domains, ratios, side, mix.seed)
    with Writer(staged / f"mixed/{side}_mixed.jsonl") as writer:
        for slot in mixture.take(size):
            entry = entries[slot.name][slot.index]
            writer.write(repeated(spool.read(entry.offset, entry.length), slot.repeat))
    counts = {domain: 0 for domain in ratios}
    for name, drawn in mixture.drawn.items():
        counts[domains[name]] += drawn
        info["datasets"][name][f"{side}_mix"] = {
            "lines": drawn,
            "unique": min(drawn, sizes[name]),
            "repetition": round(drawn / (min(drawn, sizes[name]) or 1), 2),
        }
    largest = mixture.largest_without_repeats()
    info["mixed"][side] = {**writer.facts, "domains": counts, "largest_without_repeats": largest}
    job.tell(f"mixed {size:,} for {side}")
    return writer.facts


def _info(
    job: Job,
    pools: Sequence[Pool],
    splits: Mapping[str, Sequence[str]],
    datasets: Mapping[str, Sides],
    domains: Mapping[str, Domain],
) -> dict[str, Any]:
    mix = job.settings.mix
    notes = []
    for name, taken in splits.items():
        pool = job.settings.datasets[name].pool
        if job.mode == "plan-c" and list(taken) != list(pool):
            notes.append(f"{name}: {', '.join(pool)} had no files; {', '.join(taken)} taken instead (--any-split)")
    return {
        "split": job.mode,
        "seed": mix.seed,
        "train_test": list(mix.train_test),
        "val_fraction": mix.val_fraction,
        "domain_ratios": dict(mix.domain_ratios),
        "raw": {pool.name: _fingerprint(pool.files) for pool in pools},
        "datasets": {
            name: {
                "domain": domains[name],
                "splits": splits.get(name, []),
                "records": len(sides.train) + len(sides.val) + len(sides.test) + sum(sides.dropped.values()),
                "train": len(sides.train),
                "val": len(sides.val),
                "test": len(sides.test),
                "dropped": dict(sides.dropped),
            }
            for name, sides in datasets.items()
        },
        "mixed": {},
        "contamination": contamination(dict(datasets)),
        "notes": notes,
    }


def _fingerprint(files: Sequence[Path]) -> dict[str, Any]:
    """Number, bytes and one checksum of a pool's files, whatever their order and folder."""
    digests = sorted(sha256_of(file) for file in files)
    total = hashlib.sha256("\n".join(digests).encode()).hexdigest() if len(digests) > 1 else digests[0]
    return {"files": len(files), "bytes": sum(file.stat().st_size for file in files), "sha256": total}


def _notes(info: Mapping[str, Any]) -> list[str]:
    notes = []
    for name, facts in info["datasets"].items():
        drawn = facts.get("train_mix")
        if drawn and drawn["repetition"] > _OFTEN:
            notes.append(
                f"{name}: each of its {drawn['unique']} training problems comes about {drawn['repetition']:.0f} times "
                "in the training mix"
            )
        if info["split"] == "plan-c" and name in ("humaneval", "mbpp"):
            notes.append(f"{name}: the training part holds published test problems; do not compare with papers")
    for name, shared in info["contamination"].items():
        if shared["context"]:
            notes.append(f"{name}: {shared['context']} test problems share their context with a training problem")
    return notes
