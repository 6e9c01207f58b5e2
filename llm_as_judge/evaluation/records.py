"""The records of an evaluation, one line per workflow run, from which an interrupted evaluation resumes.

    with Ledger(path, resume=True) as ledger:
        ledger.known  # records of earlier runs of the same evaluation

All figures are computed from records alone, so an interruption does not change them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from llm_as_judge.errors import DataError
from llm_as_judge.events import RolloutEvent
from llm_as_judge.files import write_whole
from llm_as_judge.runlog import EventLog, LogReader, encoded, is_log


def read_records(path: Path) -> Iterator[RolloutEvent]:
    """The readable records of a file; raises ``DataError`` for a file of version 0.2 or of something else."""
    if not is_log(path):
        raise DataError(f"{path}: no records of this version; move the file away to run its evaluation again")
    for event in LogReader(path).new():
        if isinstance(event, RolloutEvent):
            yield event


def write_records(path: Path, records: Iterable[RolloutEvent]) -> None:
    """Replaces the file as a whole. Raises ``OSError`` with its name."""
    write_whole(path, b"".join(encoded(record) + b"\n" for record in records))


@dataclass
class Ledger:
    """Appends records to ``path``; ``known`` are those already there, by problem and sample.

    Without ``resume`` the file is emptied. Unscored records are not known: their workflows run again.
    """

    path: Path
    resume: bool = False
    known: dict[tuple[int, int], RolloutEvent] = field(default_factory=dict)

    def __enter__(self) -> Ledger:
        if self.resume and self.path.exists():
            self.known = {(r.index, r.sample): r for r in read_records(self.path) if r.correct is not None}
        write_records(self.path, self.known.values())
        self._log = EventLog(self.path)
        return self

    def __exit__(self, *exception: object) -> None:
        self._log.close()

    def add(self, record: RolloutEvent) -> None:
        """Raises ``OSError`` with the file's name."""
        self._log.log(record)
