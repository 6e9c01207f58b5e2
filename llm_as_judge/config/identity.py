"""What settings come to, wherever the files lie that they name: two checkouts of one project have the same.

Files to read and the policy's weights stand for themselves by their content. Left out is where results go, how an
endpoint is reached, when a run has cost enough, and who is told of it: none changes what is measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from llm_as_judge.config.describe import names_input
from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import LEAVES, SECTIONS, Config

_REACHED_BY = (
    "api_key",
    "base_url",
    "more_urls",
    "timeout_s",
    "max_retries",
    "concurrency",
    "no_proxy",
    "second_base_url",
)
_NO_PART = ("output", "budget", "tracking")
_PLACES = ("persistence_dir", "cache")
#: Bytes at each end of a larger file that tell it, with its size: weights take gigabytes.
_END = 1 << 22


def identity(config: Config) -> str:
    """A digest of all that decides what a run comes to, as 64 hexadecimal digits."""
    return digest(decisive(config, (section for section in SECTIONS if section not in _NO_PART)))


def decisive(config: Config, sections: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The settings of ``sections``, of JSON's types."""
    return {section: dict(_settings(config, section)) for section in sections}


def digest(value: Any) -> str:
    """SHA-256 of what JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def content_of(place: Path) -> str:
    """A digest of a file, or of a folder's files with their names; the name itself where nothing is there."""
    if place.is_dir():
        files = sorted(path for path in place.rglob("*") if path.is_file())
        return digest([[str(path.relative_to(place)), content_of(path)] for path in files])
    if not place.is_file():
        return str(place)
    told, size = hashlib.sha256(), place.stat().st_size
    with open(place, "rb") as file:
        if size > 2 * _END:
            told.update(f"{size} ".encode() + file.read(_END))
            file.seek(-_END, 2)
        while block := file.read(1 << 20):
            told.update(block)
    return told.hexdigest()


def _settings(config: Config, section: str) -> Iterator[tuple[str, Any]]:
    for name, value in getattr(config, section).model_dump(mode="json").items():
        if name in _REACHED_BY or name in _PLACES:
            continue
        if name == "model_name":
            yield name, content_of(Path(locate_weights(config.base_model.path)))
        elif not names_input(LEAVES[f"{section}.{name}"]) or not value:
            yield name, value
        elif isinstance(value, dict):  # file.py:function to weight
            yield name, {_named(key): weight for key, weight in value.items()}
        else:
            yield name, content_of(Path(value))


def _named(function: str) -> str:
    file, _, name = function.rpartition(":")
    return f"{content_of(Path(file))}:{name}"
