"""The records of an evaluation, one line per workflow run, from which an interrupted evaluation resumes.

    with Ledger(path, resume=True) as ledger:
        ledger.known  # records of earlier runs of the same evaluation

All figures are computed from records alone, so an interruption does not change them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from llm_as_judge.errors import DataError
from llm_as_judge.events import RolloutEvent
from llm_as_judge.files import write_whole
from llm_as_judge.runlog import EventLog, LogReader, encoded, is_log
from llm_as_judge.types import Group, Problem, Rollout


def read_records(path: Path) -> Iterator[RolloutEvent]:
    """The records of a file; raises ``DataError`` for a file of version 0.2 or of something else."""
    if not is_log(path):
        raise DataError(f"{path}: no records of this version; move the file away to run its evaluation again")
    return (event for event in LogReader(path).new() if isinstance(event, RolloutEvent))


def grouped(records: Iterable[RolloutEvent], problems: Sequence[Problem]) -> list[Group]:
    """The rollouts of each of ``problems`` that has records, in order; they get back what the log left out of it."""
    found: dict[int, list[Rollout]] = {}
    for record in sorted(records, key=lambda record: (record.index, record.sample)):
        found.setdefault(record.index, []).append(replace(record.rollout, problem=problems[record.index]))
    return [Group(problems[index], rollouts) for index, rollouts in found.items()]


def records_of(groups: Sequence[Group]) -> list[RolloutEvent]:
    """The records of an evaluation's rollouts."""
    members = ((index, k, rollout) for index, group in enumerate(groups) for k, rollout in enumerate(group.rollouts))
    return [RolloutEvent(index=index, sample=k, rollout=rollout) for index, k, rollout in members]


def write_records(path: Path, records: Iterable[RolloutEvent]) -> None:
    """Replaces the file as a whole. Raises ``OSError`` with its name."""
    write_whole(path, b"".join(encoded(record) + b"\n" for record in records))


class Ledger(EventLog):
    """Appends records to ``path``; ``known`` are those already there, by problem and sample.

    Without ``resume`` the file is emptied. Unscored records are not known: their workflows run again.
    """

    def __init__(self, path: Path, resume: bool = False) -> None:
        found = read_records(path) if resume and path.exists() else ()
        self.known = {(r.index, r.sample): r for r in found if r.rollout.verdict.correct is not None}
        write_records(path, self.known.values())
        super().__init__(path)

    def __enter__(self) -> "Ledger":
        return self
