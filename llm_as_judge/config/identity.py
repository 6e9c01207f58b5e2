"""Digest of the settings that decide a run's results; the same in two checkouts of one project.

Input files and the policy's weights count by their content. Left out are the places of results, the connection to
endpoints, budgets and trackers, because none of them changes what is measured.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from llm_as_judge.config.fields import names_input, with_paths
from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import LEAVES, SECTIONS, Config
from llm_as_judge.files import sha256_of

IRRELEVANT = ("output", "budget", "tracking")
#: Of a larger file, only this many bytes at each end are read, and its size: weights take gigabytes.
_END = 1 << 22


def identity(config: Config) -> str:
    """Compute the SHA-256 of all settings that decide the results of a run."""
    return digest(decisive(config, (section for section in SECTIONS if section not in IRRELEVANT)))


def decisive(config: Config, sections: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the deciding settings of ``sections``, as JSON types; named executors belong to ``executor``."""
    found = {section: dict(_settings(config, section)) for section in sections}
    if config.executors and "executor" in found:
        named = config.model_dump(mode="json", include={"executors"})["executors"].items()
        found["executors"] = {of: {k: own[k] for k in own if not is_access(f"executor.{k}")} for of, own in named}
    return found


def digest(value: Any) -> str:
    """Compute the SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def content_of(place: Path) -> str:
    """Digest a file, or the files of a folder and their names; the path itself if it does not exist."""
    if place.is_dir():
        files = sorted(path for path in place.rglob("*") if path.is_file())
        return digest([[str(path.relative_to(place)), content_of(path)] for path in files])
    if not place.is_file():
        return str(place)
    if (size := place.stat().st_size) <= 2 * _END:
        return sha256_of(place)
    with open(place, "rb") as file:
        begin = file.read(_END)
        file.seek(-_END, 2)
        return hashlib.sha256(f"{size} ".encode() + begin + file.read()).hexdigest()


def is_access(name: str) -> bool:
    """Tell whether the schema marks a setting, by its full name, as one that decides no result."""
    return name in LEAVES and "access" in LEAVES[name].metadata


def _settings(config: Config, section: str) -> Iterator[tuple[str, Any]]:
    for name, value in getattr(config, section).model_dump(mode="json").items():
        if is_access(f"{section}.{name}"):
            continue
        if name == "model_name":
            yield name, content_of(Path(locate_weights(config.base_model.path)))
        else:
            own = names_input(LEAVES[f"{section}.{name}"])
            yield name, with_paths(value, lambda path: content_of(Path(path))) if own else value
