"""Raw records of a file, one at a time; unreadable ones with place and reason.

Formats: JSON lines; JSON documents (an array, an object with an array ``data``, or objects one after another); CSV with
a header, or MMLU's; each also gzipped. The ``datasets`` library reads Parquet, Arrow and the Hugging Face hub
(``hub:owner/name[/configuration][:split]``). Memory is bounded by ``LONGEST``, whatever the file's size or
compression. A bad line does not end a JSON-lines file; the first syntax error ends a JSON document.
"""

import csv
import glob
import gzip
import io
import itertools
import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import msgspec

from llm_as_judge.data.benchmarks import choices, squad2
from llm_as_judge.data.download import fetch_from_hub, refusing_datasets
from llm_as_judge.data.record import Record
from llm_as_judge.errors import DataError, Untested

logger = logging.getLogger(__name__)
ENDINGS = ".json, .jsonl or .csv, one of them and .gz, .parquet or .arrow"
#: Maximum bytes of one record. A record of the benchmarks has at most some 10 kB, an article of SQuAD 500 kB.
LONGEST = 16 << 20
_TOO_LONG = f"longer than {LONGEST >> 20} MB"
_CHUNK = 1 << 20
_ROWS = 32  # of a table, held at once
_HUB = re.compile(r"hub:([\w.-]+/[\w.-]+)(?:/([\w.-]+))?(?::([\w.-]+))?")
#: Start of an array, which may be in an object as in SQuAD's release: fields before ``data`` must be scalars.
_ARRAY = re.compile(r'\s*(?:\{\s*("[^"\\]*"\s*:\s*("[^"\\]*"|[\w.+-]+)\s*,\s*)*"data"\s*:\s*)?\[')
_BETWEEN = re.compile(r"[\s,]*")
_encode = msgspec.json.Encoder().encode
#: A record, or why there is none.
Raw = Record | DataError
T = TypeVar("T")


class Faults:
    """Bad records as ``file:record: reason``. All are counted, the first ``SHOWN`` are kept."""

    SHOWN = 20

    def __init__(self) -> None:
        self.count, self._lines = 0, list[str]()
        self.untested = ""  # the first record that was left out

    def add(self, place: str, reason: object) -> None:
        self.count += 1
        if self.count <= self.SHOWN:
            self._lines.append(f"{place}: {reason}")

    def __str__(self) -> str:
        more = self.count - len(self._lines)
        return "\n".join([*self._lines, *([f"... and {more:,} more bad records"] if more else [])])


def files_in(path: Path) -> list[Path]:
    """List the file itself, all readable files under a folder in sorted order, or the cached files of a hub's data set.

    Raises ``DataError`` if there are none.
    """
    if str(path).startswith("hub:"):
        return _from_hub(str(path))

    def stop(error: OSError) -> None:
        raise error

    try:
        path.stat()
        if not path.is_dir():
            return [path]
        files = sorted(Path(folder, name) for folder, _, names in os.walk(path, onerror=stop) for name in names)
    except OSError as error:
        missing = "no such file or folder; name another, or make it: llm-as-judge data download, then data process"
        reason = missing if isinstance(error, FileNotFoundError) else (error.strerror or str(error)).lower()
        raise DataError(f"{error.filename or path}: cannot be read: {reason}") from error
    files = [file for file in files if _suffix(file) in _READERS]
    if not files:
        raise DataError(f"{path}: no problems in it: no file name ends in {ENDINGS}")
    return files


def parsed(path: Path, parse: Callable[[Record], T | None], faults: Faults) -> Iterator[tuple[str, T]]:
    """Yield place and ``parse`` of every record of ``path``; None is left out. Bad records are added to ``faults``, and
    a warning counts those that their benchmark publishes without tests or answer.
    """
    untested: list[str] = []
    for place, record in read(path):
        try:
            if isinstance(record, DataError):
                raise record
            item = parse(record)
        except Untested as error:
            untested.append(f"{place}: {error}")
        except DataError as error:
            faults.add(place, error)
        else:
            if item is not None:
                yield place, item
    warn_untested(untested)
    faults.untested = faults.untested or "".join(untested[:1])


def warn_untested(records: Sequence[str]) -> None:
    if records:
        logger.warning("%d records that nothing can decide are left out, the first %s", len(records), records[0])


def read(path: Path) -> Iterator[tuple[str, Raw]]:
    """Yield place (``file:line``, ``file:record N`` in a JSON document) and record of everything in ``path``.

    Raises ``DataError`` for an unknown suffix.
    """
    reader = _READERS.get(_suffix(path))
    if reader is None:
        raise DataError(f"{path}: cannot read {path.suffix or 'a file without suffix'}; use {ENDINGS}")
    where, number = f"{path}:{'record ' if reader in (_document, _table) else ''}", 0
    try:
        if path.exists() and not path.is_file():
            raise OSError("not a regular file")  # reading a pipe without a writer never ends
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, record in enumerate(reader(cast("IO[bytes]", file)), 1):
                if record is not None:
                    yield f"{where}{number}", record
    except (OSError, EOFError, zlib.error) as error:
        yield f"{where}{number + 1}", DataError(f"cannot be read: {error}")
    except (DataError, ValueError, RecursionError, csv.Error) as error:
        yield f"{where}{number + 1}", _fault(error)


def _suffix(path: Path) -> str:
    """Return the suffix before a possible ``.gz``."""
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix


def _fault(error: Exception) -> DataError:
    if isinstance(error, DataError):
        return error
    if isinstance(error, UnicodeDecodeError):
        return DataError(f"not UTF-8 here or later ({error.reason}); save the file as UTF-8 text")
    if isinstance(error, RecursionError):
        return DataError("not JSON: nested too deeply")
    if isinstance(error, csv.Error):
        return DataError(f"not CSV: {error}")
    return DataError(f"not JSON: {error.msg if isinstance(error, json.JSONDecodeError) else error}")


def _record(value: Any) -> Raw:
    """Return the value as a record, if it is an object of valid text."""
    if not isinstance(value, dict):
        return DataError(f"must be an object, got {type(value).__name__}")
    try:
        _encode(value)
    except UnicodeEncodeError:
        return DataError("contains half a surrogate pair, such as \\ud83d, which is not a character; remove it")
    return value


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield lines of the file; more than ``LONGEST`` bytes of a line are cut off."""
    while line := file.readline(LONGEST + 1):
        yield line
        while len(line) > LONGEST and not line.endswith(b"\n"):
            line = file.readline(LONGEST + 1)


def _json_lines(file: IO[bytes]) -> Iterator[Raw | None]:
    for line in _lines(file):
        if len(line) > LONGEST:
            yield DataError(f"the line is {_TOO_LONG}")
            continue
        try:
            yield None if line.isspace() else _record(json.loads(line.decode("utf-8-sig")))
        except (ValueError, RecursionError) as error:
            yield _fault(error)


def _csv(file: IO[bytes]) -> Iterator[Raw | None]:
    header, lines = None, (line[:LONGEST].decode("utf-8-sig") for line in _lines(file))
    first = [*itertools.islice(lines, 1)]
    delimiter = next((mark for mark in ",;\t" if mark in "".join(first)), ",")  # spreadsheets of many countries write ;
    for row in csv.reader(itertools.chain(first, lines), delimiter=delimiter):
        if header is None:
            header = [] if choices.is_row(row) else row
            if header:
                yield None
                continue
        if not header:
            yield choices.from_row(row)
        elif len(row) == len(header):
            yield {name: value for name, value in zip(header, row, strict=True) if value}
        else:
            yield DataError(f"the header names {len(header)} columns ({', '.join(header)}), and the row has {len(row)}")


def _table(file: IO[bytes]) -> Iterator[Raw]:
    """Yield the rows of a Parquet or Arrow file, as they are stored: images and sounds are not decoded."""
    path = Path(file.name)
    with refusing_datasets() as datasets:
        rows = datasets.load_dataset(path.suffix[1:], data_files=glob.escape(str(path)), split="train", streaming=True)
        for table in rows.with_format("arrow").iter(batch_size=_ROWS):
            yield from table.to_pylist()


def _from_hub(name: str) -> list[Path]:
    """Find the files in which ``datasets`` keeps a split of a data set on the hub. Raises ``DataError``."""
    if not (parts := _HUB.fullmatch(name)):
        raise DataError(f"{name}: write hub:owner/name, hub:owner/name:split or hub:owner/name/configuration:split")
    try:
        records: Any = fetch_from_hub(parts[1], parts[2], parts[3] or "train")
    except DataError as error:
        cure = "without a network, name a file: .parquet, .arrow or .jsonl"
        raise DataError(f"{name}: cannot be fetched: {error}; {cure}") from error
    return [Path(file["filename"]) for file in records.cache_files]


def _document(file: IO[bytes]) -> Iterator[Raw]:
    for value in _values(io.TextIOWrapper(file, "utf-8-sig")):
        if not (isinstance(value, dict) and "paragraphs" in value):
            yield _record(value)
            continue
        try:
            yield from map(_record, squad2.flatten(value))
        except DataError as error:
            yield error


def _values(file: io.TextIOWrapper) -> Iterator[Any]:
    """Yield the values of an array, which may be wrapped in an object; else all values of the document."""
    text, at, decode = file.read(_CHUNK), 0, json.JSONDecoder().raw_decode
    if array := _ARRAY.match(text):
        at = array.end()
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it matches anything
        if array and text.startswith("]", at):
            return
        value, end, fault = None, len(text), None
        try:
            value, end = decode(text, at)
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


_READERS: dict[str, Callable[[IO[bytes]], Iterator[Raw | None]]] = {
    ".json": _document, ".jsonl": _json_lines, ".csv": _csv, ".parquet": _table, ".arrow": _table,
}  # fmt: skip
