"""``llm-as-judge data download``: benchmarks from the Hugging Face hub to ``RAW/<dataset>/<split>.jsonl``.

The ``datasets`` library does the transfer and keeps its own cache, so that a broken transfer goes on where it stopped.
Here files are written whole or not at all, those already there with the right checksum are not fetched again, and the
manifest comes last. A split whose release files were put there by hand is left alone. Nothing is parsed but the first
record of a split, to notice a hub that changed its fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.files import Writer, sha256_of, writing
from llm_as_judge.data.settings import DatasetSettings, Source, splits_there
from llm_as_judge.errors import DataError
from llm_as_judge.files import write_json

MANIFEST = "manifest.json"
#: What was fetched by a run that has not come to its end.
JOURNAL = ".manifest.part.json"


class Records(Protocol):
    """The records of one split, how many there are, and the version they are of."""

    def __iter__(self) -> Any: ...
    def __len__(self) -> int: ...


#: Hub id, configuration, split -> its records.
Fetch = Callable[[str, str, str], Records]
#: Dataset, split, records written, records in all.
Progress = Callable[[str, str, int, int], None]


@dataclass(frozen=True, slots=True)
class _Target:
    name: str
    split: str
    source: Source

    @property
    def file(self) -> str:
        return f"{self.name}/{self.split}.jsonl"


def fetch_from_hub(hub_id: str, config: str, split: str) -> Records:
    """By the ``datasets`` library. Raises ``DataError`` where that is not installed, or fails for any reason."""
    try:
        # By name: any folder called datasets on the path imports as an empty module.
        from datasets import disable_progress_bars, load_dataset
    except ImportError as error:
        raise DataError("the datasets library is not installed; pip install 'llm-as-judge[data]'") from error
    disable_progress_bars()
    try:
        records: Records = load_dataset(hub_id, config, split=split)
    except Exception as error:  # of a dozen libraries, without a common base
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise DataError(f"{type(error).__name__}: {reason[:300]}") from error
    return records


def download(
    settings: DatasetSettings,
    raw: Path,
    names: Iterable[str],
    *,
    fetch: Fetch = fetch_from_hub,
    progress: Progress = lambda *_: None,
) -> dict[str, Any]:
    """Fetch what is not there yet; the manifest. Raises ``DataError`` that names all files to be put there by hand
    where something cannot be fetched; what was fetched before that stays and is not fetched again.
    """
    sources = settings.sources(list(names))
    targets = [_Target(name, split, source) for name, source in sources.items() for split in source.hub.splits]
    files = {**_read(raw / MANIFEST), **_read(raw / JOURNAL)}
    for i, target in enumerate(targets):
        if _intact(raw / target.file, files.get(target.file)):
            lines = files[target.file]["lines"]
            progress(target.name, target.split, lines, lines)
            continue
        if target.file not in files and target.split in splits_there(raw, target.name, target.source):
            continue  # put there by hand
        try:
            files[target.file] = _fetch(target, raw, fetch, progress)
        except DataError as error:
            missing = dict.fromkeys(t.name for t in targets[i:])
            raise DataError(
                "\n".join([f"{target.name}: not fetched: {error}", *_by_hand(raw, sources, missing)])
            ) from error
        with writing(raw):
            write_json(raw / JOURNAL, {"files": files})
    manifest = {"files": dict(sorted(files.items()))}
    with writing(raw):
        write_json(raw / MANIFEST, manifest)
        (raw / JOURNAL).unlink(missing_ok=True)
    return manifest


def _fetch(target: _Target, raw: Path, fetch: Fetch, progress: Progress) -> dict[str, Any]:
    hub = target.source.hub
    path = raw / target.file
    by_config = [fetch(hub.id, config, hub.splits[target.split]) for config in hub.configs]
    total = sum(len(records) for records in by_config)
    if not total:
        raise DataError(f"{hub.id} has no records in split {hub.splits[target.split]!r}")
    with Writer(path.with_name(path.name + ".part")) as writer:
        for records in by_config:
            for record in records:
                if not writer.lines:
                    DATASETS[target.name].parse(record)
                writer.write((json.dumps(record, ensure_ascii=False, default=str) + "\n").encode("utf-8"))
                if writer.lines % 500 == 0 or writer.lines == total:
                    progress(target.name, target.split, writer.lines, total)
    if writer.lines != total:
        raise DataError(f"{hub.id} promised {total} records and gave {writer.lines}")
    with writing(path):
        writer.path.replace(path)
    return {**writer.facts, "hub": hub.id, "configs": list(hub.configs), "split": hub.splits[target.split]}


def _intact(path: Path, facts: Mapping[str, Any] | None) -> bool:
    return (
        facts is not None
        and path.is_file()
        and path.stat().st_size == facts["bytes"]
        and sha256_of(path) == facts["sha256"]
    )


def _read(path: Path) -> dict[str, Any]:
    """Files of a manifest; one that is torn or of another make counts as none, for the files are checked anyway."""
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    if not isinstance(files, dict):
        return {}
    wanted = {"lines", "bytes", "sha256"}
    return {name: facts for name, facts in files.items() if isinstance(facts, dict) and wanted <= facts.keys()}


def _by_hand(raw: Path, sources: Mapping[str, Source], names: Iterable[str]) -> list[str]:
    lines = [f"Try again later, it goes on from here. Without a network, put these files into {raw.resolve()} by hand:"]
    for name in names:
        for split, patterns in sources[name].release.items():
            places = " or ".join(str(raw / pattern) for pattern in patterns)
            lines.append(f"  {name}, {split}: {places} (from {sources[name].page})")
    return lines
