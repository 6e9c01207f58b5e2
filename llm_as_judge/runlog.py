"""The event log: one JSON object a line, only ever appended, readable while it is written and after a crash.

log = EventLog("logs/run.jsonl"); log.log("step", step=1, reward=4.2)
for event in read_events("logs/run.jsonl"): print(event["kind"], event["time"])
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from llm_as_judge.files import naming

logger = logging.getLogger(__name__)

Event = TypeVar("Event")
_KIND = re.compile(rb'"kind": ?"(\w+)"')
_HEAD = 120  # bytes of a line in which its kind stands


class EventLog:
    """Appends events to ``path``. Several writers may share a file: every event is one write of one line."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        size = os.fstat(self._file).st_size
        #: The last line is not whole, for a run died within it or the disk was full; the next event must not join it.
        self._torn = bool(size) and os.pread(self._file, 1, size - 1) != b"\n"

    def log(self, kind: str, /, **fields: Any) -> None:
        """Write one event with ``kind`` and ``time`` (Unix seconds); nan and infinity become null.

        Raises ``OSError`` with the name of the file.
        """
        event = {"time": time.time(), "kind": kind, **fields}
        line = (json.dumps(_plain(event), allow_nan=False, ensure_ascii=True) + "\n").encode()
        if self._torn:
            line = b"\n" + line
        with naming(self.path):
            while line:
                written = os.write(self._file, line)
                line = line[written:]
                self._torn = bool(line)

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def read_events(path: str | Path) -> Iterator[dict[str, Any]]:
    """The events of a log, oldest first; none for a file that does not exist yet.

    A line that a crash tore is skipped: silently at the end, where it may still be under way, else with a
    warning.
    """
    if not Path(path).exists():
        return
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if isinstance(event, dict) and "kind" in event:
                yield event
            elif line.endswith(b"\n") and line.strip():
                logger.warning("%s:%d: skipped a torn line", path, number)


class EventReader(Generic[Event]):
    """Reads a log as it grows: ``new`` gives what was written since the last call, oldest first.

    Events of the kinds in ``types`` come as these structures, which costs a fraction of a mapping; those in ``skip``
    not at all. A line that is still being written waits for the next call, one that a crash tore is left out. Where
    another log has taken the place of the one read, it is read from its start.
    """

    def __init__(
        self, path: str | Path, types: Mapping[str, type[Event]] | None = None, skip: Collection[str] = ()
    ) -> None:
        self.path = Path(path)
        self._decoders = {kind: msgspec.json.Decoder(of) for kind, of in (types or {}).items()}
        self._plain = msgspec.json.Decoder()
        self._skip = frozenset(skip)
        self._offset, self._inode = 0, -1

    def new(self) -> Iterator[Event | dict[str, Any]]:
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._offset, self._inode = 0, status.st_ino
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                found = _KIND.search(line, 0, _HEAD)
                kind = found[1].decode() if found else ""
                if kind in self._skip:
                    continue
                try:
                    event = self._decoders.get(kind, self._plain).decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    if line.strip():
                        logger.warning("%s: skipped a torn line before byte %d", self.path, self._offset)
                    continue
                if kind in self._decoders or (isinstance(event, dict) and "kind" in event):
                    yield event


def steps_of(log: Path, kind: str = "step") -> list[dict[str, Any]]:
    """The events of a ``kind``, one for each step: a resumed run's later record of a step wins."""
    events = EventReader[Any](log, skip=("rollout", "prompt", "layers", "audit", "usage"))
    found = {event["step"]: event for event in events.new() if event["kind"] == kind}
    return [found[step] for step in sorted(found)]


def step_in(checkpoint: object) -> int:
    """The step in a checkpoint's path, 0 for none."""
    found = re.search(r"step_(\d+)\W*$", str(checkpoint or ""))
    return int(found[1]) if found else 0


def _plain(value: Any) -> Any:
    """``value`` as what JSON holds; anything else as its ``str``."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (int, bool)):
        return value
    text = value if isinstance(value, str) else str(value)
    # Half a surrogate pair is no text in UTF-8, and a reader would take the line for a torn one.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
