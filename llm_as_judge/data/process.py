"""``llm-as-judge data process``: raw files -> per-dataset splits, test sets and the mix, with ``info.json`` last.

Memory holds one short row a problem, never the texts: lines go to a spool, are sorted by reading them back, and are
copied as bytes from then on. Nothing under ``out`` is touched before everything is written aside.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from llm_as_judge.data.files import Writer, move_into_place, sha256_of, staging, write_json, writing
from llm_as_judge.data.ingest import Lines, Pool, ingest_all, units, without_collection
from llm_as_judge.data.mixture import Mixture, repeated
from llm_as_judge.data.rows import Row
from llm_as_judge.data.settings import DatasetSettings, raw_files, splits_there
from llm_as_judge.data.split import Sides, contamination, decontaminated, split, split_official
from llm_as_judge.datasets.catalog import DATASETS
from llm_as_judge.datasets.reading import files_in
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.types import Domain

SplitMode = Literal["plan-c", "official"]
SIDES = ("train", "val", "test")
INFO = "mixed/info.json"
TEST_INDEX = "test/test_index.json"
#: A set that comes more often than this in the training mix is named in ``notes``.
_OFTEN = 20


@dataclass(frozen=True, slots=True)
class Job:
    """What to process. ``custom``: users' own files; ``any_split``: where the pool's splits have no files, take those
    that have; ``processes`` changes nothing but the time.
    """

    settings: DatasetSettings
    raw: Path
    out: Path
    mode: SplitMode = "plan-c"
    custom: tuple[Path, ...] = ()
    any_split: bool = False
    processes: int = 1
    tell: Callable[[str], None] = field(default=lambda line: None)


@dataclass(frozen=True, slots=True)
class _Sources:
    pools: list[Pool]
    used: dict[str, list[str]]  # dataset -> splits


def process(job: Job) -> dict[str, Any]:
    """Do it; the content of ``info.json``. Raises ``ConfigError`` or ``DataError``, with every bad record named, and
    leaves ``out`` as it was.
    """
    if job.mode not in ("plan-c", "official"):
        raise ConfigError(f"--split must be plan-c or official, got {job.mode!r}")
    sources = _sources(job)
    mix = job.settings.mix
    with staging(job.out, "process") as aside, without_collection():
        spool, staged = aside / "spool", aside / "out"
        work = units(sources.pools, spool, mix.seed)
        rows: dict[str, dict[Domain, list[Row]]] = {}
        faults: list[str] = []
        for part in ingest_all(work, job.processes):
            faults += part.faults
            for domain, several in part.rows.items():
                rows.setdefault(part.pool, {}).setdefault(domain, []).extend(several)
        if faults:
            raise DataError("\n".join([*faults, f"{len(faults)} bad records; nothing was written to {job.out}"]))
        job.tell(f"read {sum(len(r) for by in rows.values() for r in by.values()):,} records")
        sides, domains = _split(job, rows)
        del rows
        written: dict[tuple[str, str], _File] = {}
        with closing(Lines(lambda part: spool / f"{part}.jsonl")) as lines:
            for name, one in sides.items():
                for side in SIDES:
                    if side != "val" or mix.val_fraction:
                        written[name, side] = _write_side(staged, lines, name, side, getattr(one, side))
                job.tell(f"{name}: {len(one.train):,} train, {len(one.val):,} validation, {len(one.test):,} test")
        info = _info(job, sources, sides, domains)
        for side in SIDES:
            if side != "val" or mix.val_fraction:
                _mix(job, staged, side, domains, written, info)
        info["notes"] += _notes(info)
        _write_indexes(staged, info, domains, written)
        shutil.rmtree(spool)
        stale = {"mixed": "*_mixed.jsonl", "test": "*_test.jsonl", "processed": "*.jsonl"}
        move_into_place(staged, job.out, INFO, stale)
    return info


def _sources(job: Job) -> _Sources:
    pools, used, missing = list[Pool](), dict[str, list[str]](), list[str]()
    for name, source in job.settings.chosen(job.settings.mix.datasets).items():
        wanted: dict[str, tuple[list[str], str | None]] = {name: (list(source.pool), None)}
        if job.mode == "official":
            one_file = DATASETS[name].split_of is not None
            wanted = {
                f"{name} {side}": (list(source.release) if one_file else [split_], split_ if one_file else None)
                for side, split_ in source.official.items()
            }
            used[name] = list(source.official.values())
        elif job.any_split:
            there = splits_there(job.raw, name, source)
            wanted = {name: ([s for s in source.pool if s in there] or there or list(source.pool), None)}
        for pool, (splits, only) in wanted.items():
            used.setdefault(name, splits)
            try:
                files = [file for s in splits for file in raw_files(job.raw, name, source, s)]
            except DataError as error:
                missing.append(str(error))
                continue
            pools.append(Pool(pool, name, tuple(files), only))
    if missing:
        raise DataError("\n".join(missing))
    if job.custom:
        own = [file for path in job.custom for file in files_in(path)]
        pools.append(Pool("custom", "custom", tuple(own), fields=job.settings.fields))
    if not pools:
        raise ConfigError("there is nothing to process: name --datasets or --custom FILE")
    return _Sources(pools, used)


def _split(job: Job, rows: dict[str, dict[Domain, list[Row]]]) -> tuple[dict[str, Sides], dict[str, Domain]]:
    mix, sides, domains = job.settings.mix, dict[str, Sides](), dict[str, Domain]()
    for name in mix.datasets:
        domain = DATASETS[name].domain
        if job.mode == "official":
            train, test = (rows.get(f"{name} {side}", {}).get(domain, []) for side in ("train", "test"))
            sides[name] = split_official(train, test, mix.val_fraction)
        else:
            sides[name] = split(rows.get(name, {}).get(domain, []), mix.train_test, mix.val_fraction)
        domains[name] = domain
        if not sides[name].train and not sides[name].test:
            raise DataError(f"{name}: no problems in its files")
    for domain, own in rows.get("custom", {}).items():
        sides[f"custom_{domain}"] = split(own, mix.train_test, mix.val_fraction)
        domains[f"custom_{domain}"] = domain
    return decontaminated(sides), domains


@dataclass(frozen=True, slots=True)
class _File:
    """One side of a dataset as written; line ``i`` lies from ``offsets[i]`` to ``offsets[i + 1]``."""

    path: Path
    offsets: list[int]
    facts: dict[str, Any]


def _write_side(staged: Path, lines: Lines, name: str, side: str, rows: Sequence[Row]) -> _File:
    """``processed/<name>_<side>.jsonl``, and for the test side its copy in ``test``."""
    with Writer(staged / "processed" / f"{name}_{side}.jsonl") as writer:
        offsets = [writer.write(lines.read(row.part, row.offset, row.length)) for row in rows]
    if side == "test":
        copy = staged / "test" / f"{name}_test.jsonl"
        with writing(copy):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(writer.path, copy)
    return _File(writer.path, [*offsets, writer.bytes], writer.facts)


def _mix(
    job: Job,
    staged: Path,
    side: str,
    domains: Mapping[str, Domain],
    written: Mapping[tuple[str, str], _File],
    info: dict[str, Any],
) -> None:
    mix = job.settings.mix
    size = {"train": mix.train_size, "test": mix.test_size, "val": round(mix.train_size * mix.val_fraction)}[side]
    names = sorted(domains)
    offsets = {name: written[name, side].offsets for name in names}
    sizes = {name: len(offsets[name]) - 1 for name in names}
    present = set(domains.values())
    ratios = {domain: ratio for domain, ratio in mix.domain_ratios.items() if domain in present}
    mixture = Mixture(sizes, domains, ratios, f"{mix.seed}/{side}")
    number = {name: i for i, name in enumerate(names)}
    with (
        closing(Lines(lambda part: written[names[part], side].path)) as lines,
        Writer(staged / "mixed" / f"{side}_mixed.jsonl") as writer,
    ):
        for slot in mixture.take(size):
            begin, end = offsets[slot.name][slot.index : slot.index + 2]
            writer.write(repeated(lines.read(number[slot.name], begin, end - begin), slot.repeat))
    counts = {domain: 0 for domain in ratios}
    for name, drawn in mixture.drawn.items():
        counts[domains[name]] += drawn
        info["datasets"][name][f"{side}_mix"] = {
            "lines": drawn,
            "unique": min(drawn, sizes[name]),
            "repetition": round(drawn / (min(drawn, sizes[name]) or 1), 2),
        }
    info["mixed"][side] = {
        **writer.facts,
        "domains": counts,
        "largest_without_repeats": mixture.largest_without_repeats(),
    }
    job.tell(f"mixed {size:,} for {side}")


def _info(job: Job, sources: _Sources, sides: Mapping[str, Sides], domains: Mapping[str, Domain]) -> dict[str, Any]:
    mix = job.settings.mix
    datasets: dict[str, Any] = {}
    for name, one in sides.items():
        datasets[name] = {
            "domain": domains[name],
            "splits": sources.used.get(name, []),
            "records": len(one.train) + len(one.val) + len(one.test) + sum(one.dropped.values()),
            "train": len(one.train),
            "val": len(one.val),
            "test": len(one.test),
            "dropped": dict(one.dropped),
        }
    notes = []
    for name, splits in sources.used.items():
        pool = job.settings.datasets[name].pool
        if job.mode == "plan-c" and splits != list(pool):
            notes.append(f"{name}: {', '.join(pool)} had no files; {', '.join(splits)} taken instead (--any-split)")
    return {
        "split": job.mode,
        "seed": mix.seed,
        "train_test": list(mix.train_test),
        "val_fraction": mix.val_fraction,
        "domain_ratios": dict(mix.domain_ratios),
        "raw": {pool.name: _fingerprint(pool.files) for pool in sources.pools},
        "datasets": datasets,
        "mixed": {},
        "contamination": contamination(dict(sides)),
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


def _write_indexes(
    staged: Path, info: dict[str, Any], domains: Mapping[str, Domain], written: Mapping[tuple[str, str], _File]
) -> None:
    index: dict[str, Any] = {"split": info["split"], "datasets": {}}
    files: dict[str, Any] = {f"mixed/{side}_mixed.jsonl": facts for side, facts in info["mixed"].items()}
    for (name, side), file in written.items():
        files[f"processed/{name}_{side}.jsonl"] = file.facts
        if side == "test":
            files[f"test/{name}_test.jsonl"] = file.facts
            index["datasets"][name] = {"file": f"{name}_test.jsonl", "domain": domains[name], **file.facts}
    info["files"] = {
        name: {key: facts[key] for key in ("lines", "bytes", "sha256")} for name, facts in sorted(files.items())
    }
    write_json(staged / TEST_INDEX, index)
    write_json(staged / INFO, info)
