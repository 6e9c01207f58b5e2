"""Atomic writes, file locks, readable errors for files, and long texts cut."""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from llm_as_judge.errors import ConfigError, DataError

LONGEST_SOURCE = 1_000_000  # bytes; a larger problem or workflow is a mistake
LONGEST_TABLE = 1 << 30  # bytes of labelled pairs or workflows, one a line


def write_whole(path: Path, content: str | bytes) -> None:
    """Write atomically: to a temporary file, synced to disk and renamed. Readers see the old file or the new one.

    Raises ``OSError`` with the name of ``path``, which is then unchanged.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
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


def cut(text: str, longest: int) -> str:
    """Cut to at most ``longest`` characters (100 or more): the middle of a longer text is replaced by a mark."""
    if len(text) <= longest:
        return text
    half = (longest - 60) // 2  # the mark takes the rest
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"


def sha256_of(path: Path) -> str:
    """Compute the checksum of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically."""
    write_whole(path, json_text(value, 2) + "\n")


def picked(value: object, names: str) -> dict[str, Any]:
    """Pick the attributes of ``value`` with these names, which are separated by spaces."""
    return {name: getattr(value, name) for name in names.split()}


def json_text(value: Any, indent: int = 0) -> str:
    """Write plain data, dataclasses and paths as JSON, by default on one line; NaN becomes null."""

    def plain(value: Any) -> Any:
        return dict(value) if isinstance(value, Mapping) else float(value) if isinstance(value, float) else str(value)

    return msgspec.json.format(msgspec.json.encode(value, enc_hook=plain), indent=indent).decode()


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty if the file is missing, damaged or something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def naming(path: Path, aside: Path | None = None) -> Iterator[None]:
    """Make an ``OSError`` of the block name ``path`` instead of no file (a full disk) or the temporary ``aside``."""
    try:
        yield
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        if found := re.search(r"\(os error (\d+)\)", str(error)):  # of libraries in Rust, such as safetensors
            number = int(found[1])
        if number is None or getattr(error, "filename", None) not in (None, str(aside)):
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def read_source(path: Path, longest: int = LONGEST_SOURCE) -> str:
    """Read the text of a regular file of at most ``longest`` bytes; raises ``DataError`` if it cannot be read."""
    try:
        return read_regular(path, longest)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8 text") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}; name another") from error


def read_regular(path: Path, longest: int, encoding: str = "utf-8") -> str:
    """Read the text of a file; raises ``OSError`` for longer ones, and for pipes and devices, which may never end."""
    if path.exists() and not path.is_file():
        raise OSError("not a regular file")
    if (size := path.stat().st_size) > longest:
        raise OSError(f"{size:,} bytes; at most {longest:,} are read")
    return path.read_text(encoding)


@contextmanager
def locked(path: Path, busy: str = "", cure: str = "") -> Iterator[None]:
    """Hold an exclusive lock on ``path``, by a file next to it; the kernel releases it if the process dies.

    If another process holds it, waits, or with ``busy``, what it does, raises ``ConfigError``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            file.seek(0)
            holder = file.read(100).strip() or "unknown"
            raise ConfigError(f"{path} is {busy} another process ({holder}); {cure}") from None
        with suppress(OSError):  # on a full disk the holder is not recorded
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"process {os.getpid()}".encode())
        yield
