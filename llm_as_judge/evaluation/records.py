"""The records of an evaluation, one line per workflow run, from which an interrupted evaluation resumes.

    with Ledger(path, resume=True) as ledger:
        ledger.known  # records of earlier runs of the same evaluation

All figures are computed from records alone, so an interruption does not change them.
"""

from collections.abc import Iterator
from pathlib import Path

from llm_as_judge.errors import DataError
from llm_as_judge.events import RolloutEvent
from llm_as_judge.files import write_whole
from llm_as_judge.runlog import EventLog, LogReader, encoded, is_log
from llm_as_judge.types import Rollout


def read_records(path: Path) -> Iterator[RolloutEvent]:
    """Read the records of a file; raises ``DataError`` for a file of version 0.2 or of something else."""
    if not is_log(path):
        raise DataError(f"{path}: no records of this version; move the file away to run its evaluation again")
    return (event for event in LogReader(path).new() if isinstance(event, RolloutEvent))


class Ledger(EventLog):
    """Appends records to ``path``; ``known`` are the rollouts already there, by problem and sample.

    Without ``resume`` the file is emptied. Unscored ones are not known: their workflows run again.
    """

    def __init__(self, path: Path, resume: bool = False) -> None:
        found = read_records(path) if resume and path.exists() else ()
        scored = {(r.index, r.sample): r for r in found if r.rollout.verdict.correct is not None}
        write_whole(path, b"".join(encoded(record) + b"\n" for record in scored.values()))
        super().__init__(path)
        self.known = {key: record.rollout for key, record in scored.items()}

    def add(self, index: int, sample: int, rollout: Rollout) -> None:
        self.known[index, sample] = rollout
        self.log(RolloutEvent(index=index, sample=sample, rollout=rollout))

    def __enter__(self) -> "Ledger":
        return self
