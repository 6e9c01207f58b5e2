"""Files written whole or not at all: into a folder aside, checksummed, then moved into place, the index last.

While files are moved a marker stands in their folder; ``check_whole`` refuses a folder that still has one.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from llm_as_judge.errors import DataError

MARKER = ".incomplete"
#: The file in a folder of test sets that says what they are.
TEST_INDEX = "test_index.json"
_BLOCK = 1 << 20


class Writer:
    """A file in lines of bytes with its checksum, which survives a loss of power. Close it (or use ``with``) before
    reading ``facts``.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.lines, self.bytes, self._digest = path, 0, 0, hashlib.sha256()
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb", 1 << 20)

    def write(self, line: bytes) -> None:
        """Append one line."""
        try:
            self._file.write(line)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self._digest.update(line)
        self.lines += 1
        self.bytes += len(line)

    def close(self) -> None:
        with writing(self.path), self._file:
            self._file.flush()
            os.fsync(self._file.fileno())

    @property
    def facts(self) -> dict[str, Any]:
        """``lines``, ``bytes`` and ``sha256``."""
        return {"lines": self.lines, "bytes": self.bytes, "sha256": self._digest.hexdigest()}

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            with suppress(OSError):  # what is left in the buffer of a full disk
                self._file.close()


class Spool:
    """Lines put aside in one file and read back by place, without mapping them into memory. For this process alone."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, 0
        with writing(path):
            self._file = io.BufferedWriter(io.FileIO(path, "w+"), 1 << 20)

    def add(self, line: bytes) -> int:
        """Append one line; its offset."""
        try:
            self._file.write(line)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self.size += len(line)
        return self.size - len(line)

    def flush(self) -> None:
        """To be called between the last ``add`` and the first ``read``."""
        with writing(self.path):
            self._file.flush()

    def read(self, offset: int, length: int) -> bytes:
        """The line that was added there."""
        line = os.pread(self._file.fileno(), length, offset)
        if len(line) != length:
            raise DataError(f"{self.path}: was changed while it was in use")
        return line

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A failure to write becomes a ``DataError`` that names the file, the reason and the cure."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> DataError:
    cure = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make it writable"
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    return DataError(
        f"{path}: cannot be written: {reason}; {cure} or choose another place. What was there before is as it was"
    )


@contextmanager
def staging(out: Path, name: str) -> Iterator[Path]:
    """An empty folder inside ``out`` for work in progress, removed in the end; so are those of dead processes."""
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for old in out.glob(f".{name}-*"):
            if not _alive(old.name.rpartition("-")[2]):
                shutil.rmtree(old, ignore_errors=True)
        folder = out / f".{name}-{os.getpid()}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def move_into_place(staged: Path, out: Path, last: str, stale: Mapping[str, str]) -> None:
    """Move every file of ``staged`` to the same place under ``out``; ``last``, the index, after all others.

    ``stale``: folder -> pattern of files of an earlier run that must not stay where this one has none. From before
    the first move until after the last, a marker stands in each of the folders.
    """
    files = sorted(path.relative_to(staged) for path in staged.rglob("*") if path.is_file())
    folders = {(out / file).parent for file in files}
    with writing(out):
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / MARKER).touch()
        (out / last).unlink(missing_ok=True)
        kept = {out / file for file in files}
        for where, pattern in stale.items():
            for old in (out / where).glob(pattern):
                if old not in kept:
                    old.unlink()
        for file in files:
            if str(file) != last:
                (staged / file).replace(out / file)
        (staged / last).replace(out / last)
        for folder in folders:
            (folder / MARKER).unlink(missing_ok=True)


def check_whole(path: Path) -> None:
    """Raises ``DataError`` when ``path`` lies in a folder whose files were being replaced when that broke off."""
    marker = path.parent / MARKER
    if marker.exists():
        raise DataError(f"{path}: an earlier run broke off while it replaced this folder; run it again (see {marker})")


def sha256_of(path: Path) -> str:
    """The checksum of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
