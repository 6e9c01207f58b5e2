"""Result files that are complete or absent: written to a staging folder, checksummed, then moved, the index last.

While files are moved, their folders contain a marker; ``check_whole`` refuses a folder that still has one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llm_as_judge.errors import DataError
from llm_as_judge.files import locked

MARKER = ".incomplete"
#: The index file in a folder of test sets.
TEST_INDEX = "test_index.json"


def write_lines(path: Path, lines: Iterable[bytes]) -> dict[str, Any]:
    """Write ``lines`` durably; their ``lines``, ``bytes`` and ``sha256``. Raises ``DataError`` if that fails."""
    digest, count, size = hashlib.sha256(), 0, 0
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb", 1 << 20) as file:
            for line in lines:
                file.write(line)
                digest.update(line)
                count += 1
                size += len(line)
            file.flush()
            os.fsync(file.fileno())
    return {"lines": count, "bytes": size, "sha256": digest.hexdigest()}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an ``OSError`` of the block into a ``DataError`` that names the file, the reason and the cure."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise DataError(
            f"{path}: cannot be written: {reason}; make room or choose another place. Earlier files are unchanged"
        ) from error


@contextmanager
def staging(out: Path) -> Iterator[Path]:
    """An empty folder inside ``out``, removed at the end; an ``OSError`` of the block becomes a ``DataError``.

    Waits while another process writes to the same ``out``.
    """
    folder = out / ".process"
    with writing(out), locked(out / ".process.lock"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def move_into_place(staged: Path, out: Path, last: str, stale: Mapping[str, str]) -> None:
    """Move every file of ``staged`` to the same place under ``out``; ``last``, the index, after all others.

    ``stale``: folder -> pattern of files that are removed unless this run replaces them.
    """
    files = sorted(path.relative_to(staged) for path in staged.rglob("*") if path.is_file())
    folders = {(out / file).parent for file in files}
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).touch()
    (out / last).unlink(missing_ok=True)
    old = {path for where, pattern in stale.items() for path in (out / where).glob(pattern)}
    for path in old - {out / file for file in files}:
        path.unlink()
    for file in sorted(files, key=lambda file: str(file) == last):
        (staged / file).replace(out / file)
    for folder in folders:
        (folder / MARKER).unlink(missing_ok=True)


def check_whole(path: Path) -> None:
    """Raises ``DataError`` if ``path`` is in a folder whose files were only partly replaced."""
    marker = path.parent / MARKER
    if marker.exists():
        raise DataError(f"{path}: an earlier run broke off while it replaced this folder; run it again (see {marker})")
