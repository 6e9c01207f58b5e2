"""Raw records of a file, one at a time, with the place and reason of everything that cannot be read.

Formats: JSON lines; JSON documents (an array, an object with an array ``data``, a single object, or several objects
one after another); MMLU's CSV; each also gzipped. Memory is bounded by ``LONGEST``, whatever the file's size or
compression. A bad line does not end a JSON-lines file; the first syntax error ends a JSON document.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import os
import re
import typing
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from llm_as_judge.data.benchmarks import mmlu, squad2
from llm_as_judge.data.record import Record
from llm_as_judge.errors import DataError

SUFFIXES = (".json", ".jsonl", ".csv")
ENDINGS = ".json, .jsonl or .csv (MMLU's), or one of them and .gz"
#: Maximum bytes of one record. A record of the benchmarks has at most some 10 kB, an article of SQuAD 500 kB.
LONGEST = 16 << 20
_TOO_LONG = f"longer than {LONGEST >> 20} MB"
_CHUNK = 1 << 20
_SPACE = re.compile(r"\s*")
#: The start and the end of an object around an array ``data``, as in SQuAD's release. Its other fields must be scalars,
#: in at most ``_HEAD`` characters.
_HEAD = 1 << 12
_SCALAR = r'(?:"[^"\\]*"|[^\s"\[\]{},]+)'
_WRAPPER = re.compile(rf'\s*\{{\s*(?:"(?!data")[^"\\]*"\s*:\s*{_SCALAR}\s*,\s*)*"data"\s*:\s*(?=\[)')
_WRAPPER_END = re.compile(rf'(?:\s*,\s*"[^"\\]*"\s*:\s*{_SCALAR})*\s*\}}\s*\Z')
_decode, _encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
_decode_prefix = json.JSONDecoder().raw_decode
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Raw:
    """One record, or ``None`` and the reason. ``place`` is its line, or ``record N`` in a JSON document."""

    place: str
    record: Record | None
    reason: str = ""


class Faults:
    """Bad records as ``file:place: reason``. All are counted, the first ``SHOWN`` are kept."""

    SHOWN = 20

    def __init__(self) -> None:
        self.count, self._lines = 0, list[str]()

    def add(self, file: Path, place: str, reason: object) -> None:
        self.count += 1
        if self.count <= self.SHOWN:
            self._lines.append(f"{file}:{place}: {reason}")

    def __str__(self) -> str:
        more = self.count - len(self._lines)
        return "\n".join([*self._lines, *([f"... and {more:,} more bad records"] if more else [])])


def files_in(path: Path) -> list[Path]:
    """The file itself, or all readable files under a folder in sorted order. Raises ``DataError`` if there are none."""

    def stop(error: OSError) -> None:
        raise error

    try:
        path.stat()
        if not path.is_dir():
            return [path]
        files = sorted(Path(folder, name) for folder, _, names in os.walk(path, onerror=stop) for name in names)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file or folder") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"{error.filename or path}: cannot be read: {reason}") from error
    files = [file for file in files if _suffix(file) in SUFFIXES]
    if not files:
        raise DataError(f"{path}: no problems in it: no file name ends in {ENDINGS}")
    return files


def parsed(path: Path, parse: Callable[[Record], T | None], faults: Faults) -> Iterator[T]:
    """``parse`` of every record of ``path``; None is left out. Bad records are added to ``faults``."""
    for raw in read(path):
        try:
            if raw.record is None:
                raise DataError(raw.reason)
            item = parse(raw.record)
        except DataError as error:
            faults.add(path, raw.place, error)
            continue
        if item is not None:
            yield item


def read(path: Path) -> Iterator[Raw]:
    """Every record of ``path``. Raises ``DataError`` for an unknown suffix."""
    suffix = _suffix(path)
    if suffix not in SUFFIXES:
        raise DataError(f"{path}: cannot read {path.suffix or 'a file without suffix'}; use {ENDINGS}")
    try:
        with path.open("rb") as raw:
            unpacked = typing.cast("io.RawIOBase", gzip.GzipFile(fileobj=raw)) if path.suffix == ".gz" else raw.raw
            file = io.BufferedReader(unpacked, _CHUNK)
            if file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                yield Raw("1", None, "is UTF-16; save it as UTF-8")
            else:
                yield from {".jsonl": _json_lines, ".csv": _csv, ".json": _document}[suffix](file)
    except (OSError, EOFError, zlib.error) as error:
        yield Raw("1", None, f"cannot be read: {error}")


def _suffix(path: Path) -> str:
    """The suffix before a possible ``.gz``."""
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix


def _lines(file: io.BufferedReader) -> Iterator[bytes]:
    """Lines of the file; more than ``LONGEST`` bytes of a line are cut off."""
    while line := file.readline(LONGEST + 1):
        yield line
        while len(line) > LONGEST and not line.endswith(b"\n"):
            line = file.readline(LONGEST + 1)


def _json_lines(file: io.BufferedReader) -> Iterator[Raw]:
    for number, line in enumerate(_lines(file), 1):
        if len(line) > LONGEST:
            yield Raw(str(number), None, f"the line is {_TOO_LONG}")
        elif not line.isspace():
            yield _parse_line(line, str(number))


def _parse_line(line: bytes, place: str) -> Raw:
    try:
        value = _decode(line)
        if isinstance(value, dict):
            return Raw(place, value)
    except (ValueError, RecursionError):
        pass  # ``json`` explains more, and reads what msgspec refuses: NaN, a lone surrogate, a byte order mark
    try:
        return _checked(json.loads(line.decode("utf-8-sig" if place == "1" else "utf-8")), place)
    except UnicodeDecodeError as error:
        return Raw(place, None, f"not UTF-8: {error.reason} at byte {error.start}")
    except ValueError as error:
        return Raw(place, None, f"not JSON: {error}")
    except RecursionError:
        return Raw(place, None, "not a record: nested too deeply")


def _checked(value: Any, place: str) -> Raw:
    """The value as a record, if it is an object of valid text."""
    if not isinstance(value, dict):
        return Raw(place, None, f"must be an object, got {type(value).__name__}")
    try:
        _encode(value)
    except UnicodeEncodeError:
        return Raw(place, None, "contains half a surrogate pair, such as \\ud83d, which is not a character; remove it")
    return Raw(place, value)


def _csv(file: io.BufferedReader) -> Iterator[Raw]:
    number = 0

    def text_lines() -> Iterator[str]:
        nonlocal number
        for number, line in enumerate(_lines(file), 1):
            if len(line) > LONGEST:
                raise csv.Error(f"the line is {_TOO_LONG}")
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")

    rows = csv.reader(text_lines())
    while True:
        try:
            row = next(rows)
            yield Raw(str(number), mmlu.from_row(row))
        except StopIteration:
            return
        except DataError as error:
            yield Raw(str(number), None, str(error))
        except UnicodeDecodeError as error:
            yield Raw(str(number), None, f"not UTF-8 from here: {error.reason}")
        except csv.Error as error:
            yield Raw(str(number), None, f"not CSV: {error}")


class _SyntaxFault(Exception):
    """Why the rest of a JSON document cannot be read."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(line, reason)
        self.raw = Raw(str(line), None, reason)


class _Window:
    """Text of a JSON document: values are taken from its front, chunks of the file are added at its end."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file, self._decoder = file, codecs.getincrementaldecoder("utf-8-sig")()
        self.text, self.at, self.ended, self._line = "", 0, False, 1
        self.fill(_HEAD)

    def fill(self, size: int) -> None:
        """Read until ``size`` characters are there, or the file ends."""
        while not self.ended and len(self.text) - self.at < size:
            self._grow()

    def _grow(self) -> None:
        rest = self.text[self.at :]
        self._line += self.text.count("\n", 0, self.at)
        chunk = self._file.read(max(_CHUNK, len(rest)))
        try:
            self.text, self.at, self.ended = rest + self._decoder.decode(chunk, not chunk), 0, not chunk
        except UnicodeDecodeError as error:
            line = self._line + rest.count("\n") + chunk[: error.start].count(b"\n")
            raise _SyntaxFault(line, f"not UTF-8: {error.reason}") from error

    def peek(self) -> str:
        """The next character that is not a space, or nothing at the end."""
        while True:
            self.at = typing.cast("re.Match[str]", _SPACE.match(self.text, self.at)).end()
            if self.at < len(self.text) or self.ended:
                return self.text[self.at : self.at + 1]
            self._grow()

    def take(self, *allowed: str) -> str:
        """``peek``, which must be one of ``allowed``, removed from the front."""
        if (char := self.peek()) not in allowed:
            raise self.fault(f"expected {' or '.join(map(repr, allowed))}, got {repr(char) if char else 'the end'}")
        self.at += 1
        return char

    def value(self) -> Any:
        """The next JSON value, removed from the front."""
        start = self.peek()
        while True:
            try:
                value, end = _decode_prefix(self.text, self.at)
            except json.JSONDecodeError as error:
                if self.ended or start not in '{["':
                    raise self.fault(error.msg, error.pos) from None
                if len(self.text) - self.at > LONGEST:
                    raise self.fault(f"{error.msg}, or a record {_TOO_LONG}", error.pos) from None
            except RecursionError:
                raise self.fault("nested too deeply") from None
            else:
                if end - self.at > LONGEST:
                    raise self.fault(f"a record {_TOO_LONG}")
                self.at = end
                return value
            self._grow()

    def fault(self, reason: str, at: int | None = None) -> _SyntaxFault:
        line = self._line + self.text.count("\n", 0, self.at if at is None else at)
        return _SyntaxFault(line, f"not JSON: {reason}")


def _document(file: io.BufferedReader) -> Iterator[Raw]:
    number = 0
    try:
        for value in _values(_Window(file)):
            for item in _flattened(value):
                number += 1
                yield item if isinstance(item, Raw) else _checked(item, f"record {number}")
    except _SyntaxFault as fault:
        yield fault.raw


def _values(window: _Window) -> Iterator[Any]:
    """The values of an array, which may be wrapped in an object; else all values of the document."""
    if wrapper := _WRAPPER.match(window.text):
        window.at = wrapper.end()
    if window.peek() != "[":
        while window.peek():
            yield window.value()
        return
    window.take("[")
    if window.peek() == "]":
        window.take("]")
    else:
        yield window.value()
        while window.take(",", "]") == ",":
            yield window.value()
    window.fill(_HEAD)
    if not _WRAPPER_END.match(window.text, window.at) if wrapper else window.peek():
        raise window.fault("expected nothing else after the array")


def _flattened(value: Any) -> Iterator[Any]:
    """The questions of one of SQuAD's articles; any other value as it is."""
    if not (isinstance(value, dict) and "paragraphs" in value):
        yield value
        return
    try:
        yield from squad2.flatten(value)
    except DataError as error:
        yield Raw(f"article {value.get('title', '')!r}", None, str(error))
