"""Raw records of a file, one at a time, with the place and reason of everything that cannot be read.

Formats: JSON lines; JSON documents (an array, an object with an array ``data``, a single object, or several objects
one after another); MMLU's CSV; each also gzipped. Memory is bounded by ``LONGEST``, whatever the file's size or
compression. A bad line does not end a JSON-lines file; the first syntax error ends a JSON document.
"""

from __future__ import annotations

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
#: Start of an array, which may be in an object as in SQuAD's release: fields before ``data`` must be scalars.
_ARRAY = re.compile(r'\s*(?P<wrapper>\{\s*("[^"\\]*"\s*:\s*("[^"\\]*"|[\w.+-]+)\s*,\s*)*"data"\s*:\s*)?\[')
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
    """Bad records as ``file:record: reason``. All are counted, the first ``SHOWN`` are kept."""

    SHOWN = 20

    def __init__(self) -> None:
        self.count, self._lines = 0, list[str]()

    def add(self, place: str, reason: object) -> None:
        self.count += 1
        if self.count <= self.SHOWN:
            self._lines.append(f"{place}: {reason}")

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
    except OSError as error:
        reason = "no such file or folder" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise DataError(f"{error.filename or path}: cannot be read: {reason.lower()}") from error
    files = [file for file in files if _suffix(file) in SUFFIXES]
    if not files:
        raise DataError(f"{path}: no problems in it: no file name ends in {ENDINGS}")
    return files


def parsed(path: Path, parse: Callable[[Record], T | None], faults: Faults) -> Iterator[tuple[str, T]]:
    """Place and ``parse`` of every record of ``path``; None is left out. Bad records are added to ``faults``."""
    for raw in read(path):
        place = f"{path}:{raw.place}"
        try:
            if raw.record is None:
                raise DataError(raw.reason)
            item = parse(raw.record)
        except DataError as error:
            faults.add(place, error)
            continue
        if item is not None:
            yield place, item


def read(path: Path) -> Iterator[Raw]:
    """Every record of ``path``. Raises ``DataError`` for an unknown suffix."""
    readers = {".jsonl": _json_lines, ".csv": _csv, ".json": _document}
    if (suffix := _suffix(path)) not in readers:
        raise DataError(f"{path}: cannot read {path.suffix or 'a file without suffix'}; use {ENDINGS}")
    try:
        if path.exists() and not path.is_file():
            raise OSError("not a regular file")  # reading a pipe without a writer never ends
        with path.open("rb") as raw:
            unpacked = typing.cast("io.RawIOBase", gzip.GzipFile(fileobj=raw)) if path.suffix == ".gz" else raw.raw
            yield from readers[suffix](io.BufferedReader(unpacked, _CHUNK))
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
        return _checked(json.loads(line.decode("utf-8-sig")), place)
    except UnicodeDecodeError as error:
        return Raw(place, None, f"not UTF-8: {error.reason} at byte {error.start}")
    except (ValueError, RecursionError) as error:
        return Raw(place, None, _not_json(error))


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
    rows = csv.reader(line[:LONGEST].decode("utf-8-sig") for line in _lines(file))
    while True:
        try:
            row = next(rows)
            yield Raw(str(rows.line_num), mmlu.from_row(row))
        except StopIteration:
            return
        except DataError as error:
            yield Raw(str(rows.line_num), None, str(error))
        except UnicodeDecodeError as error:
            yield Raw(str(rows.line_num + 1), None, f"not UTF-8 from here: {error.reason}")
        except csv.Error as error:
            yield Raw(str(rows.line_num), None, f"not CSV: {error}")


def _document(file: io.BufferedReader) -> Iterator[Raw]:
    number = 0
    try:
        for value in _values(io.TextIOWrapper(typing.cast("io.BytesIO", file), "utf-8-sig")):
            for item in _flattened(value):
                number += 1
                yield item if isinstance(item, Raw) else _checked(item, f"record {number}")
    except UnicodeDecodeError as error:
        yield Raw(f"record {number + 1}", None, f"not UTF-8 here or later: {error.reason}")
    except (ValueError, RecursionError) as error:
        yield Raw(f"record {number + 1}", None, _not_json(error))


def _not_json(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg}"
    if isinstance(error, RecursionError):
        return "not JSON: nested too deeply"
    return "a number has more digits than Python reads; write it in quotes"


def _values(file: io.TextIOWrapper) -> Iterator[Any]:
    """The values of an array, which may be wrapped in an object; else all values of the document."""
    text, at = file.read(_CHUNK), 0
    array = _ARRAY.match(text)
    between = "\n\t ," if array else "\n\t "
    if array:
        at = array.end()
    while True:
        while at < len(text) and text[at] in between:
            at += 1
        if array and text.startswith("]", at):
            if not array["wrapper"] and (text[at + 1 :] + file.read(_CHUNK)).strip():
                raise json.JSONDecodeError("expected nothing else after the array", "", 0)
            return
        value, end, fault = None, len(text), None
        try:
            value, end = _decode_prefix(text, at)
        except json.JSONDecodeError as error:
            fault = error
        if end == len(text):  # the value may go on in the next chunk
            if end - at > LONGEST:
                raise json.JSONDecodeError(f"a record {_TOO_LONG}", "", 0)
            if more := file.read(max(_CHUNK, end - at)):
                text, at = text[at:] + more, 0
                continue
            if at == end and not array:
                return
            if fault:
                raise fault
        yield value
        at = end


def _flattened(value: Any) -> Iterator[Any]:
    """The questions of one of SQuAD's articles; any other value as it is."""
    if not (isinstance(value, dict) and "paragraphs" in value):
        yield value
        return
    try:
        yield from squad2.flatten(value)
    except DataError as error:
        yield Raw(f"article {value.get('title', '')!r}", None, str(error))
