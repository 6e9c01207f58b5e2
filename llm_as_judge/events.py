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
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from llm_as_judge.files import naming

logger = logging.getLogger(__name__)


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
    if value is None or isinstance(value, (str, int, bool)):
        return value
    return str(value)
