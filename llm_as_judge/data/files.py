"""Files written whole or not at all: into a folder aside, checksummed, then moved into place, the index last.

While files are moved a marker stands in their folder; ``check_whole`` refuses a folder that still has one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from llm_as_judge.errors import DataError

MARKER = ".incomplete"
_BLOCK = 1 << 20


class Writer:
    """A file in lines of bytes, with its checksum. Close it (or use ``with``) before reading ``facts``.

    ``lasting`` files survive a loss of power and are checksummed; others are for this process alone.
    """

    def __init__(self, path: Path, *, lasting: bool = True) -> None:
        self.path, self.lines, self.bytes, self._lasting = path, 0, 0, lasting
        self._digest, self._pending, self._size = hashlib.sha256(), list[bytes](), 0
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = path.open("wb", buffering=0)

    def write(self, line: bytes) -> int:
        """Append one line; its offset."""
        offset = self.bytes
        self._pending.append(line)
        self.lines += 1
        self.bytes += len(line)
        self._size += len(line)
        if self._size >= _BLOCK:
            self._flush()
        return offset

    def _flush(self) -> None:
        block = b"".join(self._pending)
        self._pending.clear()
        self._size = 0
        if self._lasting:
            self._digest.update(block)
        view = memoryview(block)
        with writing(self.path):
            while view:
                view = view[self._file.write(view) :]

    def close(self) -> None:
        try:
            self._flush()
            if self._lasting:
                with writing(self.path):
                    os.fsync(self._file.fileno())
        finally:
            self._file.close()

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
            self._file.close()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A failure to write becomes a ``DataError`` that names the file, the reason and the cure."""
    try:
        yield
    except OSError as error:
        cure = {
            errno.ENOSPC: "make room or choose another folder with --out",
            errno.EDQUOT: "make room or choose another folder with --out",
        }.get(error.errno or 0, "make it writable or choose another folder with --out")
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise DataError(f"{path}: cannot be written: {reason}; {cure}. What was there before is as it was") from error


def write_json(path: Path, value: Any) -> None:
    """``value`` as JSON, indented, in one step."""
    with Writer(path.with_name(path.name + ".part")) as writer:
        writer.write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())
    with writing(path):
        writer.path.replace(path)


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
