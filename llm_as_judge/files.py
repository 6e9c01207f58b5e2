"""Files that are there whole or not at all, that one process writes at a time, and what cannot be read or written."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from llm_as_judge.errors import DataError

LONGEST_SOURCE = 1_000_000  # bytes; a prompt or a workflow of a megabyte is a mistake


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes ``content`` aside, to the disk, and renames: a reader sees the old file or the new one, never a part.

    Raises ``OSError`` with the name of ``path``; what was there before is as it was.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    make_folder(path.parent)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with naming(path, aside):
        try:
            with open(aside, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """``value`` as indented JSON, whole or not at all. Raises ``ValueError`` for NaN, which JSON has not."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def make_folder(path: Path) -> None:
    """``path`` and those above it. Raises ``OSError``, also where a file system such as /proc takes no folders."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), error.filename) from error


@contextmanager
def naming(path: Path, aside: Path | None = None) -> Iterator[None]:
    """An ``OSError`` of the block names ``path``: writing to an open file (the disk is full) tells no name, and
    ``aside`` would tell one that nobody knows.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(aside)):
            raise
        # The folder is there: this is how /proc and its like say that they take no files.
        number = errno.EACCES if error.errno == errno.ENOENT else error.errno
        raise OSError(number, os.strerror(number), str(path)) from error


def read_source(path: Path) -> str:
    """Text of a problem, a workflow or a solution; ``DataError`` tells why it cannot be read."""
    try:
        if (size := path.stat().st_size) > LONGEST_SOURCE:
            raise DataError(f"{path}: {size:,} bytes; a problem, workflow or solution has at most {LONGEST_SOURCE:,}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


@contextmanager
def locked(path: Path, refuse: Callable[[str], Exception] | None = None) -> Iterator[None]:
    """Holds ``path`` until the process ends or the block is left; the kernel frees it, whatever happens.

    Where another process holds it, waits, or raises what ``refuse`` makes of that process.
    """
    make_folder(path.parent)
    with open(path, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if refuse else 0))
        except BlockingIOError:
            assert refuse is not None
            file.seek(0)
            raise refuse(file.read(100).strip() or "unknown") from None
        with suppress(OSError):  # who holds it is told where there is room for that
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"process {os.getpid()}".encode())
        yield
