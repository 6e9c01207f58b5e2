"""Raw records of a file in a stream, one at a time, whatever its size; what cannot be read has its place and reason.

``.jsonl``, ``.json`` (an array, SQuAD's nested object, an object with ``data``, a single record, or lines in
disguise) and MMLU's ``.csv``, each of them gzipped too. Memory is bounded by one record of ``LONGEST`` bytes. In
lines a bad one is reported and the next one read; a JSON document ends at its first fault.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import os
import stat
import typing
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from llm_as_judge.data.benchmarks import mmlu, squad2
from llm_as_judge.data.record import Record
from llm_as_judge.errors import DataError

SUFFIXES = (".json", ".jsonl", ".csv")
ENDINGS = ".json, .jsonl or .csv (MMLU's), or one of them and .gz"
#: Bytes of one record. The longest of the eight benchmarks has some tens of thousands; an article of SQuAD has 500,000.
LONGEST = 16 << 20
_CHUNK = 1 << 20
_DECODER = json.JSONDecoder()
#: As ``json.loads`` in half the time, whole numbers of any size included; what it accepts, ``json`` reads alike.
_decode, _encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Raw:
    """One record, or ``None`` and the reason. ``place``: the line, or ``record N`` of one JSON document."""

    place: str
    record: Record | None
    reason: str = ""


def suffix_of(path: Path) -> str:
    """The suffix under a possible ``.gz``."""
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix


def files_in(path: Path) -> list[Path]:
    """The file itself, or all readable files under a folder in sorted order. Raises ``DataError`` without one, and for
    a folder that may not be listed.
    """
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            return [path]
        files = sorted(Path(folder, name) for folder, _, names in os.walk(path, onerror=_stop) for name in names)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file or folder") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"{error.filename or path}: cannot be read: {reason}") from error
    files = [file for file in files if suffix_of(file) in SUFFIXES]
    if not files:
        raise DataError(f"{path}: no problems in it: no file's name ends in {ENDINGS}")
    return files


def _stop(error: OSError) -> None:
    raise error


def read(path: Path) -> Iterator[Raw]:
    """Every record of ``path``. Raises ``DataError`` for a suffix that is none of ``SUFFIXES``."""
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise DataError(f"{path}: cannot read {path.suffix or 'a file without suffix'}; use {ENDINGS}")
    try:
        with io.BufferedReader(io.FileIO(path), 1 << 20) as file:
            packed = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else None
            stream = typing.cast("IO[bytes]", packed or file)
            if (packed or file).peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                yield Raw("1", None, "is UTF-16; save it as UTF-8")
            elif suffix == ".jsonl":
                yield from _lines(stream)
            elif suffix == ".csv":
                yield from _csv(stream)
            else:
                yield from _document(stream)
    except (OSError, EOFError, zlib.error) as error:
        yield Raw("1", None, f"cannot be read: {error}")


def _lines(stream: IO[bytes]) -> Iterator[Raw]:
    number = 0
    while line := stream.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            while line and not line.endswith(b"\n"):
                line = stream.readline(_CHUNK)
            yield Raw(str(number), None, f"the line is longer than {LONGEST >> 20} MB")
        elif not line.isspace():
            yield _parsed(line, str(number))


def _parsed(line: bytes, place: str) -> Raw:
    try:
        value = _decode(line)
        return Raw(place, value) if isinstance(value, dict) else _object(value, place)
    except (ValueError, RecursionError):
        pass  # told in the words of ``json``, which also takes what others do not: NaN, half a surrogate pair, a BOM
    try:
        value = json.loads(line.decode("utf-8-sig" if place == "1" else "utf-8"))
    except UnicodeDecodeError as error:
        return Raw(place, None, f"not UTF-8: {error.reason} at byte {error.start}")
    except ValueError as error:
        return Raw(place, None, f"not JSON: {error}")
    except RecursionError:
        return Raw(place, None, "not a record: nested too deeply")
    return _object(value, place)


def _object(value: Any, place: str) -> Raw:
    if not isinstance(value, dict):
        return Raw(place, None, f"must be an object, got {type(value).__name__}")
    try:
        _encode(value)
    except UnicodeEncodeError:
        return Raw(place, None, "holds half a surrogate pair, such as \\ud83d, which is no character; take it out")
    return Raw(place, value)


def _csv(stream: IO[bytes]) -> Iterator[Raw]:
    reader = csv.reader(io.TextIOWrapper(stream, "utf-8-sig", newline=""))
    while True:
        try:
            row = next(reader)
            yield Raw(str(reader.line_num), mmlu.from_row(row))
        except StopIteration:
            return
        except DataError as error:
            yield Raw(str(reader.line_num), None, str(error))
        except UnicodeDecodeError as error:
            yield Raw(str(reader.line_num + 1), None, f"not UTF-8 from here: {error.reason}")
            return
        except csv.Error as error:
            yield Raw(str(reader.line_num), None, f"not CSV: {error}")


class _Window:
    """The part of a text in work: values are taken off its front, chunks read on to its end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._at, self._ended = "", 0, False
        self._lines = 1  # number of the line that ``_text`` begins in

    def _grow(self) -> None:
        chunk = self._stream.read(max(_CHUNK, len(self._text) - self._at))
        self._lines += self._text.count("\n", 0, self._at)
        rest = self._text[self._at :]
        self._text, self._at, self._ended = rest, 0, not chunk
        try:
            self._text += self._decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            line = self._lines + rest.count("\n") + error.object[: error.start].count(b"\n")
            raise _FaultError(str(line), f"not UTF-8: {error.reason}") from error

    def peek(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            while self._at < len(self._text):
                if not self._text[self._at].isspace():
                    return self._text[self._at]
                self._at += 1
            if self._ended:
                return ""
            self._grow()

    def take(self, *allowed: str) -> str:
        """``peek``, which must be one of ``allowed``, removed."""
        char = self.peek()
        if char not in allowed or not char:
            self.fail(f"expected {' or '.join(map(repr, allowed))}, got {repr(char) if char else 'the end'}")
        self._at += 1
        return char

    def value(self) -> Any:
        """The next JSON value, removed."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    self.fail(error.msg, error.pos)
                if len(self._text) - self._at > LONGEST:
                    self.fail(f"{error.msg}, or a record longer than {LONGEST >> 20} MB", error.pos)
            except RecursionError:
                self.fail("nested too deeply")
            else:
                # a number may go on in the next chunk, and "1" is taken off "1e+"; anything else that parsed is whole
                if end + 2 < len(self._text) or self._ended or isinstance(value, (dict, list, str)):
                    self._at = end
                    return value
            self._grow()

    def fail(self, reason: str, at: int | None = None) -> None:
        line = self._lines + self._text.count("\n", 0, self._at if at is None else at)
        raise _FaultError(str(line), f"not JSON: {reason}")


class _FaultError(Exception):
    """Where a document cannot be read any further, and why."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.raw = Raw(place, None, reason)


def _document(stream: IO[bytes]) -> Iterator[Raw]:
    window, number = _Window(stream), 0
    try:
        for value in _values(window):
            for item in _flattened(value):
                number += 1
                yield item if isinstance(item, Raw) else _object(item, f"record {number}")
    except _FaultError as fault:
        yield fault.raw


def _flattened(value: Any) -> Iterator[Any]:
    """The questions of one of SQuAD's articles; any other value as it is."""
    if not (isinstance(value, dict) and "paragraphs" in value):
        yield value
        return
    try:
        yield from squad2.flatten({"data": [value]})
    except DataError as error:
        yield Raw(f"article {value.get('title', '')!r}", None, str(error))


def _values(window: _Window) -> Iterator[Any]:
    if window.peek() == "[":
        yield from _array(window)
        if window.peek():
            window.fail("something follows the array")
        return
    while window.peek():
        if window.peek() != "{":
            yield window.value()
            continue
        whole: dict[str, Any] = {}
        window.take("{")
        more = window.peek() != "}"
        if not more:
            window.take("}")
        streamed = False
        while more:
            if window.peek() != '"':
                window.fail("a key must be text in double quotes")
            key = window.value()
            window.take(":")
            if key == "data" and window.peek() == "[":
                yield from _array(window)
                streamed = True
            else:
                whole[key] = window.value()
            more = window.take(",", "}") == ","
        if not streamed:
            yield whole


def _array(window: _Window) -> Iterator[Any]:
    window.take("[")
    if window.peek() == "]":
        window.take("]")
        return
    while True:
        yield window.value()
        if window.take(",", "]") == "]":
            return
