"""Result files that are complete or absent: written to a hidden folder, checksummed, then moved into place."""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llm_as_judge.errors import DataError
from llm_as_judge.files import locked, naming

#: Present in the output folder while its files are replaced.
MARKER = ".incomplete"


def write_lines(path: Path, lines: Iterable[bytes]) -> dict[str, Any]:
    """Write ``lines`` durably; their ``lines``, ``bytes`` and ``sha256``. Raises ``OSError`` that names ``path``."""
    digest, count, size = hashlib.sha256(), 0, 0
    with naming(path):
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
def replacing(out: Path, stale: Iterable[str]) -> Iterator[Path]:
    """Make an empty folder whose files replace those of ``out`` after the block, and all that match ``stale``.

    If the block raises, ``out`` is unchanged. Waits while another process writes to the same ``out``.
    """
    staged = out / ".process"
    with naming(out), locked(out / "process"):
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        try:
            yield staged
            (out / MARKER).touch()
            for path in [path for pattern in stale for path in out.glob(pattern)]:
                path.unlink()
            for path in [path for path in staged.rglob("*") if path.is_file()]:
                place = out / path.relative_to(staged)
                place.parent.mkdir(exist_ok=True)
                path.replace(place)
            (out / MARKER).unlink()
        finally:
            shutil.rmtree(staged, ignore_errors=True)


def check_whole(path: Path) -> None:
    """Raise ``DataError`` if ``path`` is in an output folder whose files were only partly replaced."""
    for folder in list(path.absolute().parents)[:2]:
        if (folder / MARKER).exists():
            raise DataError(f"{path}: an earlier run broke off while it replaced {folder}; run data process again")
