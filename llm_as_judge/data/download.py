"""``llm-as-judge data download``: benchmarks from the Hugging Face hub to ``RAW/<dataset>/<split>.jsonl``.

The ``datasets`` library transfers and caches, so an interrupted transfer continues. Files are complete or absent;
splits with files, downloaded or put there by hand, are skipped. Only the first record of a split is parsed, to notice
changed fields.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.dataset import Source
from llm_as_judge.data.files import write_lines
from llm_as_judge.data.settings import release_places, sources_of, splits_there
from llm_as_judge.errors import DataError

#: Hub id, configuration, split -> its records.
Fetch = Callable[[str, str, str], Sequence[Any]]
#: Dataset and split, records written, total records.
OnProgress = Callable[[str, int, int], None]


@contextmanager
def refusing_datasets() -> Iterator[Any]:
    """Give the ``datasets`` library. Raises ``DataError`` if not installed, or for what it raises in the block."""
    try:
        import datasets

        datasets.load_dataset  # noqa: B018  # any folder called datasets on the path imports as an empty module
    except (ImportError, AttributeError) as error:
        raise DataError("the datasets library is not installed; pip install 'llm-as-judge[data]'") from error
    datasets.disable_progress_bars()
    try:
        yield datasets
    except Exception as error:  # errors of a dozen libraries, without a common base
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise DataError(f"{type(error).__name__}: {reason[:300]}") from error


def fetch_from_hub(hub_id: str, config: str | None, split: str) -> Sequence[Any]:
    """Fetch by the ``datasets`` library. Raises ``DataError`` if it is not installed or fails."""
    with refusing_datasets() as datasets:
        records: Sequence[Any] = datasets.load_dataset(hub_id, config, split=split)
    return records


def download(
    raw: Path, names: Collection[str], *, fetch: Fetch = fetch_from_hub, progress: OnProgress = lambda *_: None
) -> dict[str, Any]:
    """Fetch missing files; returns the facts of each new file.

    Raises ``DataError`` if something cannot be fetched, with all files that can be put there by hand instead. Files
    fetched before that are kept.
    """
    sources = sources_of(names)
    missing = {name: [s for s in x.splits if s not in splits_there(raw, name, x)] for name, x in sources.items()}
    files: dict[str, Any] = {}
    for name, splits in missing.items():
        for split in splits:
            file = f"{name}/{split}.jsonl"
            try:
                files[file] = _fetch(raw / file, name, split, sources[name], fetch, progress)
            except DataError as error:
                left = [
                    f"  {other}, {part}: {release_places(raw, sources[other], part)}"
                    for other, parts in missing.items()
                    for part in parts
                    if f"{other}/{part}.jsonl" not in files
                ]
                again = "" if isinstance(error.__cause__, ImportError) else "Try again later, it continues. "
                by_hand = f"Without a network, put these files into {raw.resolve()} by hand:"
                raise DataError("\n".join([f"{name}: not fetched: {error}", f"{again}{by_hand}", *left])) from error
    return {"files": files}


def _fetch(path: Path, name: str, split: str, source: Source, fetch: Fetch, progress: OnProgress) -> dict[str, Any]:
    theirs = source.splits[split].hub
    by_config = [fetch(source.hub, config, theirs) for config in source.configs]
    total = sum(len(records) for records in by_config)
    if not total:
        raise DataError(f"{source.hub} has no records in split {theirs!r}")

    def lines() -> Iterator[bytes]:
        for number, record in enumerate((record for records in by_config for record in records), 1):
            if number == 1:
                DATASETS[name].parse(record)
            record = record if DATASETS[name].recognises(record) else {**record, "dataset": name}
            yield (json.dumps(record, ensure_ascii=False, default=str) + "\n").encode("utf-8")
            if number % 500 == 0 or number == total:
                progress(f"{name} {split}", number, total)

    part = path.with_name(path.name + ".part")
    facts = write_lines(part, lines())
    if facts["lines"] != total:
        raise DataError(f"{source.hub} promised {total} records and gave {facts['lines']}")
    part.replace(path)
    return {**facts, "hub": source.hub, "configs": list(source.configs), "split": theirs}
